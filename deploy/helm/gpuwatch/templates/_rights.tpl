{{/*
One object of files/rights with the names of this release. These files are what deploy/components applies, so that who
installs with Helm has the same rights and policies, to the letter.
*/}}
{{- define "gpuwatch.right" -}}
{{- $root := .root }}
{{- $object := .object }}
{{- $fullname := include "gpuwatch.fullname" $root }}
{{- $account := include "gpuwatch.account" $root }}
{{- $metadata := $object.metadata }}
{{- $_ := set $metadata "name" (printf "%s%s" $fullname (trimPrefix "gpuwatch" $metadata.name)) }}
{{- $_ := set $metadata "labels" (include "gpuwatch.labels" $root | fromYaml) }}
{{- if $metadata.namespace }}
{{- $_ := set $metadata "namespace" $root.Release.Namespace }}
{{- end }}
{{- with $object.roleRef }}
{{- $_ := set . "name" (printf "%s%s" $fullname (trimPrefix "gpuwatch" .name)) }}
{{- end }}
{{- range $object.subjects }}
{{- $_ := set . "name" $account }}
{{- $_ := set . "namespace" $root.Release.Namespace }}
{{- end }}
{{- with $object.spec }}
{{- if .policyName }}
{{- $_ := set . "policyName" (printf "%s%s" $fullname (trimPrefix "gpuwatch" .policyName)) }}
{{- end }}
{{- range .matchConditions }}
{{- $_ := set . "expression" (printf "request.userInfo.username == 'system:serviceaccount:%s:%s'" $root.Release.Namespace $account) }}
{{- end }}
{{- range .variables }}
{{- if eq .name "handover" }}
{{- $_ := set . "expression" (include "gpuwatch.handover" $root) }}
{{- else if eq .name "plugin" }}
{{- $_ := set . "expression" (dig "remediation" "restart_plugin" "" $root.Values.config | toJson) }}
{{- end }}
{{- end }}
{{- end }}
{{ toYaml $object }}
{{- end }}

{{/* A CEL list of the annotations outside gpuwatch.io/ that the remediator may write. */}}
{{- define "gpuwatch.handover" -}}
{{- $annotation := dig "remediation" "handover" "annotation" "" .Values.config }}
{{- if or (not $annotation) (hasPrefix "gpuwatch.io/" $annotation) }}[]{{ else }}{{ list $annotation | toJson }}{{ end }}
{{- end }}

{{/* Whether an object of files/rights is wanted. */}}
{{- define "gpuwatch.right.wanted" -}}
{{- $share := dig "remediation" "budget" "max_unavailable" "10%" .root.Values.config | toString }}
{{- if eq .object.kind "ServiceAccount" }}{{ if not .root.Values.remediation.serviceAccount.name }}true{{ end }}
{{- else if hasSuffix "-percent" .object.metadata.name }}{{ if hasSuffix "%" $share }}true{{ end }}
{{- else }}true{{ end }}
{{- end }}
