{{- define "gpuwatch.agent" -}}
name: agent
image: {{ include "gpuwatch.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - --config=/etc/gpuwatch/gpuwatch.yaml
  - agent
env:
  {{- include "gpuwatch.nodeName" . | nindent 2 }}
  {{- with .Values.source }}
  - name: GPUWATCH_SOURCE
    value: {{ . | quote }}
  {{- end }}
  {{- with .Values.nvidia.visibleDevices }}
  # All GPUs, seen and not taken: a request of nvidia.com/gpu would take them from workloads.
  - name: NVIDIA_VISIBLE_DEVICES
    value: {{ . | quote }}
  - name: NVIDIA_DRIVER_CAPABILITIES
    value: {{ $.Values.nvidia.driverCapabilities | quote }}
  {{- end }}
  {{- if .Values.processes.enabled }}
  - name: GPUWATCH_AGENT_PROCESSES
    value: "true"
  {{- end }}
  {{- if .Values.web.secret }}
  - name: GPUWATCH_AGENT_WEB_CONFIG
    value: /etc/gpuwatch-web/web.yaml
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: metrics
    containerPort: {{ include "gpuwatch.port" (dict "root" . "section" "agent" "default" ":9400") }}
{{- include "gpuwatch.probes" (dict "root" . "port" "metrics") }}
resources:
  {{- toYaml .Values.agent.resources | nindent 2 }}
securityContext:
  {{- include "gpuwatch.securityContext" (.Values.klog.enabled | ternary "SYSLOG" "") | nindent 2 }}
volumeMounts:
  - name: config
    mountPath: /etc/gpuwatch
    readOnly: true
  - name: run
    mountPath: /run/gpuwatch
  - name: state
    mountPath: /var/lib/gpuwatch
  {{- if .Values.hostPaths.kubelet }}
  - name: pod-resources
    mountPath: /var/lib/kubelet/pod-resources
    readOnly: true
  {{- end }}
  - name: machine-id
    mountPath: /etc/machine-id
    readOnly: true
  {{- if include "gpuwatch.podLogs" . }}
  - name: pod-logs
    mountPath: /var/log/pods
    readOnly: true
  {{- end }}
  {{- if .Values.processes.enabled }}
  - name: container-logs
    mountPath: /var/log/containers
    readOnly: true
  {{- end }}
  {{- if .Values.web.secret }}
  - name: web
    mountPath: /etc/gpuwatch-web
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
