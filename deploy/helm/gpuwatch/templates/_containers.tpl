{{/* What all containers share. */}}

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

{{/* Root, as the kubelet's socket, the agent's socket and the state folder are root's; without any of root's rights. */}}
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

{{- define "gpuwatch.nodeName" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end }}
