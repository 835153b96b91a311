{{/* Whose pod a process or an Event is about is told by the names of the pods' log folders. */}}
{{- define "gpuwatch.podLogs" -}}
{{- if or .Values.processes.enabled (ne (include "gpuwatch.remediation.mode" .) "off") }}true{{ end }}
{{- end }}

{{- define "gpuwatch.volumes" -}}
- name: config
  configMap:
    name: {{ include "gpuwatch.fullname" . }}
- name: run  # the agent's socket; memory, so that it never outlives the pod
  emptyDir:
    medium: Memory
    sizeLimit: 16Mi
- name: state  # events and open findings survive a new pod
  hostPath:
    path: {{ .Values.hostPaths.state }}
    type: DirectoryOrCreate
{{- with .Values.hostPaths.kubelet }}
- name: pod-resources  # which pod has which GPU
  hostPath:
    path: {{ . }}/pod-resources
    type: Directory
{{- end }}
- name: machine-id  # to be sure that a Node of this name is this machine
  hostPath:
    path: {{ .Values.hostPaths.machineId }}
    type: File
{{- if include "gpuwatch.podLogs" . }}
- name: pod-logs  # names only, no log is read
  hostPath:
    path: /var/log/pods
    type: Directory
{{- end }}
{{- if .Values.processes.enabled }}
- name: container-logs
  hostPath:
    path: /var/log/containers
    type: Directory
{{- end }}
{{- if ne (include "gpuwatch.remediation.mode" .) "off" }}
- name: token  # of the remediator alone: the pod mounts none
  projected:
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end }}
{{- with .Values.web.secret }}
- name: web
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
