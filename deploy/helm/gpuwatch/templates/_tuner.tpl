{{- define "gpuwatch.tuner" -}}
{{- $enforces := eq (include "gpuwatch.tuner.mode" .) "enforce" -}}
name: tuner
{{ include "gpuwatch.container" . }}
args:
  - --config=/etc/gpuwatch/gpuwatch.yaml
  - tuner
env:
  {{- include "gpuwatch.env.node" . | nindent 2 }}
  {{- if $enforces }}
  {{- with include "gpuwatch.env.gpus" . | trim }}{{ . | nindent 2 }}{{ end }}
  - name: GPUWATCH_TUNER_MODE
    value: enforce
  {{- else }}
  - name: NVIDIA_VISIBLE_DEVICES
    value: void  # no GPU and no driver
  {{- end }}
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
  {{- include "gpuwatch.securityContext" ($enforces | ternary "SYS_ADMIN" "") | nindent 2 }}
volumeMounts:
  {{- include "gpuwatch.mounts" . | nindent 2 }}
  - name: run
    mountPath: /run/gpuwatch
    readOnly: true
  {{- if $enforces }}
  - name: consents
    mountPath: /var/lib/gpuwatch/consents
    readOnly: true
  {{- end }}
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
{{- if eq (include "gpuwatch.tuner.mode" .) "enforce" }}
lifecycle:
  preStop:  # on its own node, whoever deletes the pod; tuner and guard restore at their end as well
    exec:
      command: [gpuwatch, --config=/etc/gpuwatch/gpuwatch.yaml, tune, restore, --all]
{{- end }}
securityContext:
  {{- include "gpuwatch.securityContext" "SYS_ADMIN" | nindent 2 }}
volumeMounts:
  {{- include "gpuwatch.mounts" . | nindent 2 }}
  {{- with .Values.tuner.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The one with the token: it has no GPU, and of the host only a socket. Root, as tuner and agent believe files of root only. */}}
{{- define "gpuwatch.consents" -}}
name: consents
{{ include "gpuwatch.container" . }}
args:
  - --config=/etc/gpuwatch/gpuwatch.yaml
  - tuner
  - --consents
env:
  {{- include "gpuwatch.env.node" . | nindent 2 }}
  - name: NVIDIA_VISIBLE_DEVICES
    value: void  # no GPU and no driver
  {{- if .Values.progress.enabled }}
  - name: GPUWATCH_TUNER_PROGRESS_SOCKET
    value: /run/gpuwatch-progress/progress.sock
  {{- end }}
  {{- with .Values.tuner.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .Values.consents.resources | nindent 2 }}
securityContext:
  {{- include "gpuwatch.securityContext" "" | nindent 2 }}
volumeMounts:
  - name: config
    mountPath: /etc/gpuwatch
    readOnly: true
  - name: consents
    mountPath: /var/lib/gpuwatch/consents
  - name: token
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
  {{- if .Values.progress.enabled }}
  - name: progress
    mountPath: /run/gpuwatch-progress
  {{- end }}
{{- end }}
