{{- define "gpuwatch.tuner" -}}
name: tuner
{{ include "gpuwatch.container" . }}
args:
  - --config=/etc/gpuwatch/gpuwatch.yaml
  - tuner
env:
  {{- include "gpuwatch.env.node" . | nindent 2 }}
  - name: NVIDIA_VISIBLE_DEVICES
    value: void
  {{- with include "gpuwatch.env.web" (dict "root" . "role" "TUNER") | trim }}{{ . | nindent 2 }}{{ end }}
  {{- with .Values.tuner.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: tuner
    containerPort: {{ include "gpuwatch.port" (dict "root" . "section" "tuning" "default" ":9402") }}
{{ include "gpuwatch.probes" (dict "root" . "port" "tuner") | trim }}
resources:
  {{- toYaml .Values.tuner.resources | nindent 2 }}
securityContext:
  {{- include "gpuwatch.securityContext" "" | nindent 2 }}
volumeMounts:
  {{- include "gpuwatch.mounts" . | nindent 2 }}
  - name: run
    mountPath: /run/gpuwatch
    readOnly: true
  {{- with .Values.tuner.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "gpuwatch.guard" -}}
name: guard
{{ include "gpuwatch.container" . }}
args:
  - --config=/etc/gpuwatch/gpuwatch.yaml
  - tuner
  - --guard
env:
  {{- with include "gpuwatch.env.gpus" . | trim }}{{ . | nindent 2 }}{{ end }}
  {{- with .Values.tuner.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .Values.tuner.guardResources | nindent 2 }}
securityContext:
  {{- include "gpuwatch.securityContext" "SYS_ADMIN" | nindent 2 }}
volumeMounts:
  {{- include "gpuwatch.mounts" . | nindent 2 }}
  {{- with .Values.tuner.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
