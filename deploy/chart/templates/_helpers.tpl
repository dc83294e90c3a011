{{/* At most 46 characters: names of pods are this and "-", ten of the ReplicaSet, and "-" and five, in 63. */}}
{{- define "tfs-proxy.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | replace "." "-" | trunc 46 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What never changes: a Deployment's selector can't. Pods have these alone, so that a new chart restarts none. */}}
{{- define "tfs-proxy.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "tfs-proxy.podLabels" -}}
{{- range $name, $value := merge dict (.Values.podLabels | default dict) (.Values.commonLabels | default dict) }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "tfs-proxy.labels" -}}
{{ include "tfs-proxy.selectorLabels" . }}
{{ include "tfs-proxy.moreLabels" . }}
{{- end -}}

{{/* The Job's pods are none that the Service or the Deployment selects. */}}
{{- define "tfs-proxy.cacheLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: model-cache
{{- end -}}

{{- define "tfs-proxy.moreLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tfs-proxy.variant" -}}
{{- .Values.image.variant | default (ternary "gpu" "cpu" (gt (int .Values.gpu.count) 0)) -}}
{{- end -}}

{{- define "tfs-proxy.image" -}}
{{- $tag := .Values.image.tag | default (printf "v%s-%s" .Chart.AppVersion (include "tfs-proxy.variant" .)) -}}
{{- .Values.image.repository }}:{{ $tag }}{{ with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "tfs-proxy.serviceAccountName" -}}
{{- $own := ternary (include "tfs-proxy.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $own -}}
{{- end -}}

{{/* A number as a variable has it: Helm reads 100000000 as 1e+08. */}}
{{- define "tfs-proxy.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}{{ printf "%.0f" . }}{{- else -}}{{ toString . }}{{- end -}}
{{- end -}}

{{- define "tfs-proxy.settings" -}}
{{- range $name, $value := .Values.settings }}
- name: {{ $name | quote }}
  value: {{ include "tfs-proxy.text" $value | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tfs-proxy.envFrom" -}}
{{- with .Values.model.credentials }}
{{- if .secretName }}
- secretRef:
    name: {{ .secretName | quote }}
    optional: {{ .optional }}
{{- end }}
{{- end }}
{{- with .Values.envFrom }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What the server's pods and the Job's have in common. */}}
{{- define "tfs-proxy.podSpec" -}}
serviceAccountName: {{ include "tfs-proxy.serviceAccountName" . | quote }}
# Nothing here talks to the API server. The token for a role in a cloud is another one, and comes nevertheless.
automountServiceAccountToken: false
# A variable for each port of each Service of the namespace, some of which have the names of settings: not here.
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat (.Values.tolerations | default list) (ternary (.Values.gpu.tolerations | default list) list (gt (int .Values.gpu.count) 0)) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end -}}

{{/* The folder of the cache in which this address lies; pods mount it alone. */}}
{{- define "tfs-proxy.cacheFolder" -}}
{{- printf "%s %s" .Values.model.uri (include "tfs-proxy.text" .Values.model.cache.version) | sha256sum | trunc 12 -}}
{{- end -}}

{{- define "tfs-proxy.cacheClaim" -}}
{{- .Values.model.cache.claimName | default (printf "%s-model" (include "tfs-proxy.fullname" .)) -}}
{{- end -}}

{{/* The container that fills the cache, of a pod or of the Job: with the function by which `serve` itself downloads. */}}
{{- define "tfs-proxy.fetchContainer" -}}
name: fetch-model
image: {{ include "tfs-proxy.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command:
  - python
  - -c
  - |
    {{- .Files.Get "files/fetch.py" | trim | nindent 4 }}
args:
  - {{ .Values.model.uri | quote }}
  - /cache/{{ include "tfs-proxy.cacheFolder" . }}
{{- with include "tfs-proxy.settings" . | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- with include "tfs-proxy.envFrom" . | trim }}
envFrom:
  {{- . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml .Values.model.cache.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - name: model
    mountPath: /cache
  - name: work
    mountPath: /tmp
  {{- with .Values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The names that clients ask for, where KEDA's HTTP add-on stands in front. */}}
{{- define "tfs-proxy.hosts" -}}
{{- $own := printf "%s-interceptor" (include "tfs-proxy.fullname" .) -}}
{{- $hosts := list $own (printf "%s.%s" $own .Release.Namespace) (printf "%s.%s.svc" $own .Release.Namespace) -}}
{{- if .Values.ingress.enabled }}{{ $hosts = concat $hosts (.Values.ingress.hosts | default list) }}{{ end -}}
{{- if .Values.route.enabled }}{{ $hosts = concat $hosts (.Values.route.hostnames | default list) }}{{ end -}}
{{- concat $hosts (.Values.autoscaling.kedaHttp.hosts | default list) | uniq | toYaml -}}
{{- end -}}

{{/* Variables of settings and extraEnv: place, name and value, "" where the cluster gives it. */}}
{{- define "tfs-proxy.variables" -}}
{{- $variables := list -}}
{{- range $name, $value := .Values.settings }}{{ $variables = append $variables (dict "place" "settings" "name" $name "value" (include "tfs-proxy.text" $value)) }}{{ end -}}
{{- range .Values.extraEnv }}{{ $variables = append $variables (dict "place" "extraEnv" "name" .name "value" (toString (.value | default ""))) }}{{ end -}}
{{- $variables | toJson -}}
{{- end -}}

{{/* Variables with an address that the server asks: of a store, a proxy, a package index, a collector of traces. */}}
{{- define "tfs-proxy.isAddress" -}}
{{- regexMatch "(?i)(^(https?|all)_proxy$|ENDPOINT|INDEX_URL|_EMULATOR_HOST$)" . | ternary "yes" "" -}}
{{- end -}}

{{/* networkPolicy.egress.ports, and those of addresses of the model, and in variables. */}}
{{- define "tfs-proxy.egressPorts" -}}
{{- $ports := list -}}
{{- range .Values.networkPolicy.egress.ports }}{{ $ports = append $ports (int .) }}{{ end -}}
{{- $addresses := list .Values.model.uri -}}
{{- range include "tfs-proxy.variables" . | fromJsonArray }}{{ if include "tfs-proxy.isAddress" .name }}{{ $addresses = append $addresses .value }}{{ end }}{{ end -}}
{{- range $addresses -}}
{{- $host := regexFind "^([a-z0-9]+://)?[^/?]+" . -}}
{{- $standard := hasPrefix "https:" . | ternary 443 (hasPrefix "http:" . | ternary 80 0) -}}
{{- with regexFind ":[0-9]+$" $host | trimPrefix ":" | default $standard | int }}{{ $ports = append $ports . }}{{ end -}}
{{- end -}}
{{- uniq $ports | toJson -}}
{{- end -}}

{{/* Where variables come from whose values a template can't see. */}}
{{- define "tfs-proxy.unseen" -}}
{{- $places := list -}}
{{- with .Values.model.credentials.secretName }}{{ $places = append $places (printf "the Secret %s" .) }}{{ end -}}
{{- range .Values.envFrom -}}
{{- with dig "secretRef" "name" "" . }}{{ $places = append $places (printf "the Secret %s" .) }}{{ end -}}
{{- with dig "configMapRef" "name" "" . }}{{ $places = append $places (printf "the ConfigMap %s" .) }}{{ end -}}
{{- end -}}
{{- range .Values.extraEnv }}{{ if and .valueFrom (include "tfs-proxy.isAddress" .name) }}{{ $places = append $places .name }}{{ end }}{{ end -}}
{{- $places | join ", " -}}
{{- end -}}

{{/* A quantity of Kubernetes as a number of cores, bytes or pieces: 500m is 0.5, 1Ki is 1024. */}}
{{- define "tfs-proxy.number" -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $units := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit) -}}
{{- end -}}
