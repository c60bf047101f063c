{{- define "esker.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "esker.selector" -}}
app.kubernetes.io/name: esker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "esker.labels" -}}
{{ include "esker.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The domain of the names of pods. */}}
{{- define "esker.domain" -}}
{{ include "esker.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* The client addresses of all nodes, in the order of their numbers. */}}
{{- define "esker.cluster" -}}
{{- $addresses := list -}}
{{- range $ordinal := until (int .Values.replicas) -}}
{{- $pod := printf "%s-%d" (include "esker.name" $) $ordinal -}}
{{- $addresses = append $addresses (printf "%s.%s:8080" $pod (include "esker.domain" $)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{/* Fails for values with which no node would start, or none could join. */}}
{{- define "esker.check" -}}
{{- if not (or .Values.tls.secretName .Values.tls.plain) -}}
{{- fail "tls: give secretName, or plain=true in a network that is trusted whole" -}}
{{- end -}}
{{- if and .Values.tls.clientCertificates (not .Values.tls.secretName) -}}
{{- fail "tls: clientCertificates needs secretName" -}}
{{- end -}}
{{- if and .Values.peers.plain (gt (int .Values.replicas) 1) -}}
{{- if not .Values.adminTokenSecret -}}
{{- fail "peers: with plain=true nodes join with a token: give adminTokenSecret" -}}
{{- end -}}
{{- if not .Values.tls.plain -}}
{{- fail "peers: with plain=true nodes call each other without TLS: give tls.plain=true" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A probe of a path, for a list of the scope and the path. */}}
{{- define "esker.probe" -}}
{{- $tls := (index . 0).Values.tls -}}
{{- if or (not $tls.clientCertificates) $tls.plain -}}
httpGet:
  path: {{ index . 1 }}
  port: clients
  scheme: {{ if $tls.plain }}HTTP{{ else }}HTTPS{{ end }}
{{- else if eq (index . 1) "/ready" -}}
exec:
  command:
    - /usr/bin/esker
    - up
    - --ready
    - --ca=/etc/esker/tls/ca.crt
    - --client-cert=/etc/esker/tls/tls.crt
    - --client-key=/etc/esker/tls/tls.key
{{- else -}}
tcpSocket:
  port: clients
{{- end -}}
{{- end -}}
