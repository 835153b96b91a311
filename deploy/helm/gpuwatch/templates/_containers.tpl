{{/* What all containers share. */}}

{{- define "gpuwatch.probes" -}}
startupProbe:
  httpGet:
    path: /-/healthy
    port: {{ . }}
  periodSeconds: 2
  failureThreshold: 30
# Not ready without a driver, and alive all the same: it goes on telling why.
readinessProbe:
  httpGet:
    path: /-/ready
    port: {{ . }}
  periodSeconds: 5
livenessProbe:
  httpGet:
    path: /-/healthy
    port: {{ . }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
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
