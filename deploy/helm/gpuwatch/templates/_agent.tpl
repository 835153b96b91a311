{{- define "gpuwatch.agent" -}}
name: agent
{{ include "gpuwatch.container" . }}
args:
  - --config=/etc/gpuwatch/gpuwatch.yaml
  {{- with .Values.source }}
  - {{ printf "--source=%s" . | quote }}
  {{- end }}
  - agent
env:
  {{- include "gpuwatch.env.node" . | nindent 2 }}
  {{- with include "gpuwatch.env.gpus" . | trim }}{{ . | nindent 2 }}{{ end }}
  {{- if .Values.processes.enabled }}
  - name: GPUWATCH_AGENT_PROCESSES
    value: "true"
  {{- end }}
  {{- if eq (include "gpuwatch.tuner.mode" .) "enforce" }}
  - name: GPUWATCH_AGENT_INTERVAL  # a tuner that acts looks each second
    value: "1.0"
  {{- end }}
  {{- with include "gpuwatch.env.web" (dict "root" . "role" "AGENT") | trim }}{{ . | nindent 2 }}{{ end }}
  {{- with .Values.agent.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: metrics
    containerPort: {{ include "gpuwatch.port" (dict "root" . "section" "agent" "default" ":9400") }}
{{ include "gpuwatch.probes" (dict "root" . "port" "metrics") | trim }}
resources:
  {{- toYaml .Values.agent.resources | nindent 2 }}
securityContext:
  {{- if .Values.agent.privileged }}
  privileged: true
  runAsUser: 0
  runAsGroup: 0
  readOnlyRootFilesystem: true
  {{- else }}
  {{- include "gpuwatch.securityContext" (.Values.klog.enabled | ternary "SYSLOG" "") | nindent 2 }}
  {{- end }}
volumeMounts:
  {{- include "gpuwatch.mounts" . | nindent 2 }}
  {{- include "gpuwatch.mounts.record" . | nindent 2 }}
  - name: run
    mountPath: /run/gpuwatch
  {{- range include "gpuwatch.hostMounts" . | fromYamlArray }}
  - name: {{ .name }}
    mountPath: {{ .mountPath }}
    readOnly: true
  {{- end }}
  {{- if include "gpuwatch.consents.wanted" . }}
  - name: consents  # labels for the metrics, and whose pods they are, for right-sizing
    mountPath: /var/lib/gpuwatch/consents
    readOnly: true
  {{- end }}
  {{- with .Values.agent.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
