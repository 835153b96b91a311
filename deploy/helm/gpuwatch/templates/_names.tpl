{{/* Names and labels. With release `gpuwatch` all names are those of deploy/base and deploy/components. */}}

{{- define "gpuwatch.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{- define "gpuwatch.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains (include "gpuwatch.name" .) .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (include "gpuwatch.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "gpuwatch.remediator.account" -}}
{{ .Values.remediation.serviceAccount.name | default (printf "%s-remediator" (include "gpuwatch.fullname" .)) }}
{{- end }}

{{/* The pod's account. */}}
{{- define "gpuwatch.account" -}}
{{- if ne (include "gpuwatch.remediation.mode" .) "off" -}}
{{ include "gpuwatch.remediator.account" . }}
{{- else -}}
{{ include "gpuwatch.fullname" . }}
{{- end }}
{{- end }}

{{- define "gpuwatch.selector" -}}
app.kubernetes.io/name: {{ include "gpuwatch.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The selector's labels come last: whatever commonLabels say, they stay. */}}
{{- define "gpuwatch.labels" -}}
{{- $own := dict "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_")) }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion }}
{{- mergeOverwrite (dict) .Values.commonLabels $own (include "gpuwatch.selector" . | fromYaml) | toYaml }}
{{- end }}

{{- define "gpuwatch.podLabels" -}}
{{- mergeOverwrite (dict) .Values.commonLabels .Values.podLabels (include "gpuwatch.selector" . | fromYaml) | toYaml }}
{{- end }}

{{- define "gpuwatch.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}
