{{- define "gpuwatch.remediator" -}}
name: remediator
{{ include "gpuwatch.container" . }}
args:
  - --config=/etc/gpuwatch/gpuwatch.yaml
  - remediator
env:
  {{- include "gpuwatch.env.node" . | nindent 2 }}
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: POD_NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  - name: NVIDIA_VISIBLE_DEVICES
    value: void  # no GPU and no driver
  {{- if eq (include "gpuwatch.remediation.mode" .) "enforce" }}
  - name: GPUWATCH_REMEDIATOR_MODE
    value: enforce
  {{- end }}
  {{- with include "gpuwatch.env.web" (dict "root" . "role" "REMEDIATOR") | trim }}{{ . | nindent 2 }}{{ end }}
  {{- with .Values.remediation.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: remediator
    containerPort: {{ include "gpuwatch.port" (dict "root" . "section" "remediation" "default" ":9401") }}
{{ include "gpuwatch.probes" (dict "root" . "port" "remediator") | trim }}
resources:
  {{- toYaml .Values.remediation.resources | nindent 2 }}
securityContext:
  {{- include "gpuwatch.securityContext" "" | nindent 2 }}
volumeMounts:
  {{- include "gpuwatch.mounts" . | nindent 2 }}
  {{- include "gpuwatch.mounts.record" . | nindent 2 }}
  - name: run
    mountPath: /run/gpuwatch
    readOnly: true
  - name: token
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
  {{- with .Values.remediation.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
