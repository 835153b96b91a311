{{/* What the containers share. */}}

{{- define "gpuwatch.container" -}}
image: {{ include "gpuwatch.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* Three probes of .port. Not ready without a driver, and alive all the same: it goes on telling why. */}}
{{- define "gpuwatch.probes" -}}
{{- range $probe, $of := dict
  "startupProbe" (dict "path" "/-/healthy" "when" (dict "periodSeconds" 2 "failureThreshold" 30))
  "readinessProbe" (dict "path" "/-/ready" "when" (dict "periodSeconds" 5))
  "livenessProbe" (dict "path" "/-/healthy" "when" (dict "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 6))
}}
{{ $probe }}:
  httpGet:
    path: {{ $of.path }}
    port: {{ $.port }}
    {{- with $.root.Values.web }}
    {{- if and .secret .tls }}
    scheme: HTTPS
    {{- end }}
    {{- if and .secret .probeHeaders }}
    httpHeaders:
      {{- toYaml .probeHeaders | nindent 6 }}
    {{- end }}
    {{- end }}
  {{- toYaml $of.when | nindent 2 }}
{{- end }}
{{- end }}

{{/* Root, as the kubelet's socket, the agent's socket and the state folder are root's; without root's capabilities. */}}
{{- define "gpuwatch.securityContext" -}}
runAsUser: 0
runAsGroup: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- with . }}
  add: [{{ . }}]
  {{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "gpuwatch.env.node" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end }}

{{/* All GPUs, seen and not taken: a request of nvidia.com/gpu would take them from workloads. */}}
{{- define "gpuwatch.env.gpus" -}}
{{- $devices := .Values.nvidia.visibleDevices }}
{{- if include "gpuwatch.simulated" . }}
{{- $devices = "void" }}
{{- end }}
{{- with $devices }}
- name: NVIDIA_VISIBLE_DEVICES
  value: {{ . | quote }}
{{- end }}
{{- if and $devices (ne $devices "void") }}
- name: NVIDIA_DRIVER_CAPABILITIES
  value: {{ .Values.nvidia.driverCapabilities | quote }}
{{- end }}
{{- end }}

{{/* The web configuration of a .role. */}}
{{- define "gpuwatch.env.web" -}}
{{- if .root.Values.web.secret }}
- name: GPUWATCH_{{ .role }}_WEB_CONFIG
  value: /etc/gpuwatch-web/web.yaml
{{- end }}
{{- end }}

{{/* The record of what is set on GPUs, for containers that set none: read, never written. */}}
{{- define "gpuwatch.mounts.record" -}}
- name: state
  mountPath: /var/lib/gpuwatch/tuner
  subPath: tuner
  readOnly: true
{{- end }}

{{/* Mounts of every container. */}}
{{- define "gpuwatch.mounts" -}}
- name: config
  mountPath: /etc/gpuwatch
  readOnly: true
- name: state
  mountPath: /var/lib/gpuwatch
{{- if .Values.web.secret }}
- name: web
  mountPath: /etc/gpuwatch-web
  readOnly: true
{{- end }}
{{- end }}
