{{- define "gpuwatch.remediator" -}}
name: remediator
image: {{ include "gpuwatch.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - --config=/etc/gpuwatch/gpuwatch.yaml
  - remediator
env:
  {{- if eq (include "gpuwatch.remediation.mode" .) "enforce" }}
  - name: GPUWATCH_REMEDIATOR_MODE
    value: enforce
  {{- end }}
  {{- include "gpuwatch.nodeName" . | nindent 2 }}
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
  {{- if .Values.web.secret }}
  - name: GPUWATCH_REMEDIATOR_WEB_CONFIG
    value: /etc/gpuwatch-web/web.yaml
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: remediator
    containerPort: {{ include "gpuwatch.port" (dict "root" . "section" "remediation" "default" ":9401") }}
{{- include "gpuwatch.probes" (dict "root" . "port" "remediator") }}
resources:
  {{- toYaml .Values.remediation.resources | nindent 2 }}
securityContext:
  {{- include "gpuwatch.securityContext" "" | nindent 2 }}
volumeMounts:
  - name: config
    mountPath: /etc/gpuwatch
    readOnly: true
  - name: run
    mountPath: /run/gpuwatch
    readOnly: true
  - name: state
    mountPath: /var/lib/gpuwatch
  - name: token
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
  {{- if .Values.web.secret }}
  - name: web
    mountPath: /etc/gpuwatch-web
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
