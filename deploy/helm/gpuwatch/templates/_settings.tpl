{{/* What follows from several values at once, and which of them do not go together. */}}

{{/* `off`, `observe` or `enforce`; an unquoted `off` reaches us as false. */}}
{{- define "gpuwatch.remediation.mode" -}}
{{- $mode := .Values.remediation.mode | toString | replace "false" "off" }}
{{- if and .Values.remediation.migrate (eq $mode "off") }}{{ $mode = "enforce" }}{{ end }}
{{- $mode }}
{{- end }}

{{/* Whether the remediator may evict. */}}
{{- define "gpuwatch.remediation.drain" -}}
{{- if or .Values.remediation.drain (and .Values.remediation.migrate (eq (include "gpuwatch.remediation.mode" .) "enforce")) }}true{{ end }}
{{- end }}

{{- define "gpuwatch.tuner.mode" -}}
{{ .Values.tuner.mode | toString | replace "false" "off" }}
{{- end }}

{{/* Whether the container `consents` runs. */}}
{{- define "gpuwatch.consents.wanted" -}}
{{- if or .Values.consents.enabled .Values.progress.enabled (eq (include "gpuwatch.tuner.mode" .) "enforce") }}true{{ end }}
{{- end }}

{{- define "gpuwatch.simulated" -}}
{{- if hasPrefix "sim" .Values.source }}true{{ end }}
{{- end }}

{{- define "gpuwatch.guarded" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{- define "gpuwatch.port" -}}
{{- regexFind "[0-9]+$" (dig .section "listen" .default .root.Values.config) | required (printf "config.%s.listen names no port; say ADDRESS:PORT" .section) }}
{{- end }}

{{/* gpuwatch.yaml. Helm makes every key a string; XIDs are numbers. */}}
{{- define "gpuwatch.config" -}}
{{- $config := .Values.config }}
{{- if .Values.remediation.migrate }}{{ $config = mergeOverwrite (deepCopy $config) (dict "remediation" (dict "migrate" true)) }}{{ end }}
{{- regexReplaceAll "(?m)^( *)\"([0-9]+)\":" (toYaml $config) "${1}${2}:" }}
{{- end }}

{{/* Ends with what is wrong, why, and what to do instead. */}}
{{- define "gpuwatch.check" -}}
{{- $mode := include "gpuwatch.remediation.mode" . }}
{{- range $path, $instead := dict
  "remediation.migrate" "the right to evict depends on it; set remediation.migrate of the chart instead"
  "remediation.mode" "the container and its rights depend on it; set remediation.mode of the chart instead"
  "remediation.budget.namespace" "the rights on Leases are given in the release's namespace; leave it out"
  "remediation.kubeconfig" "the pod has a service account; leave it out"
  "remediation.node_name" "all nodes share this configuration; leave it out"
  "tuning.mode" "the container and its rights depend on it; set tuner.mode of the chart instead"
  "tuning.kubeconfig" "the pod has a service account; leave it out"
  "tuning.node_name" "all nodes share this configuration; leave it out"
  "tuning.progress_socket" "the folder and hostPID depend on it; set progress.enabled of the chart instead"
  "agent.web_config" "probes and volumes depend on it; set web.secret of the chart instead"
  "remediation.web_config" "probes and volumes depend on it; set web.secret of the chart instead"
  "tuning.web_config" "probes and volumes depend on it; set web.secret of the chart instead"
  "agent.socket" "the containers meet at /run/gpuwatch/agent.sock; leave it out"
  "state_dir" "it is mounted at /var/lib/gpuwatch; set hostPaths.state of the chart instead"
}}
{{- $set := $.Values.config }}
{{- range $key := splitList "." $path }}
{{- if kindIs "map" $set }}{{ $set = get $set $key }}{{ else }}{{ $set = "" }}{{ end }}
{{- end }}
{{- if ne (toString $set) "" }}
{{- fail (printf "config.%s is set: %s" $path $instead) }}
{{- end }}
{{- end }}
{{- if and (eq $mode "enforce") (include "gpuwatch.simulated" .) }}
{{- fail (printf "remediation.mode is enforce with source=%s: simulated faults would keep work off real nodes; use observe" .Values.source) }}
{{- end }}
{{- if eq (include "gpuwatch.tuner.mode" .) "enforce" }}
{{- if include "gpuwatch.simulated" . }}
{{- fail (printf "tuner.mode is enforce with source=%s: what simulated GPUs do would set the clocks of real ones; use observe" .Values.source) }}
{{- end }}
{{- if gt (dig "agent" "interval" 1.0 .Values.config | float64) 1.0 }}
{{- fail "tuner.mode is enforce and config.agent.interval is above 1: a tuner that acts looks each second; leave it out" }}
{{- end }}
{{- end }}
{{- if and .Values.remediation.devices (ne $mode "enforce") }}
{{- fail (printf "remediation.devices is set, but remediation.mode is %s: only enforce taints; set remediation.mode=enforce, or leave devices out" $mode) }}
{{- end }}
{{- if and .Values.remediation.drain (ne $mode "enforce") }}
{{- fail (printf "remediation.drain is set, but remediation.mode is %s: only enforce evicts; set remediation.mode=enforce, or leave drain out" $mode) }}
{{- end }}
{{- if and (eq $mode "enforce") (not (include "gpuwatch.guarded" .)) (not .Values.remediation.acceptUnguarded) }}
{{- fail (printf "remediation.mode=enforce on Kubernetes %s: before 1.30 no admission policy can keep the remediator's token to its own Node; use observe, or accept that with remediation.acceptUnguarded=true" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- end }}
