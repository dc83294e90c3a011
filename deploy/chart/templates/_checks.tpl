{{/* Refuses values that can't work together, by a sentence that says what to do; the schema refuses what is wrong alone. */}}
{{- define "tfs-proxy.check" -}}
{{- include "tfs-proxy.checkNames" . -}}
{{- include "tfs-proxy.checkModel" . -}}
{{- include "tfs-proxy.checkCallers" . -}}
{{- include "tfs-proxy.checkScaling" . -}}
{{- include "tfs-proxy.checkSettings" . -}}
{{- include "tfs-proxy.checkVolumes" . -}}
{{- $selecting := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" -}}
{{- $ours := concat $selecting (list "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart") -}}
{{- range $value, $names := dict "podLabels" $selecting "commonLabels" $ours -}}
{{- range $names }}{{ if hasKey (index $.Values $value | default dict) . }}{{ fail (printf "%s: %s is the chart's own label; leave it out." $value .) }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Names that other charts have for what this one has, too. The schema lets them through, so that they meet these sentences. */}}
{{- define "tfs-proxy.checkNames" -}}
{{- $ours := dict "replicaCount" "replicas, with autoscaling.by: none, or autoscaling.minReplicas" "env" "settings, or extraEnv in Kubernetes' form" "imagePullSecrets" "image.pullSecrets" "nameOverride" "fullnameOverride" "extraContainers" "sidecars" "extraVolumes" "volumes" "extraVolumeMounts" "volumeMounts" "serviceMonitor" "monitoring.podMonitor" "podDisruptionBudget" "disruptionBudget" "topologySpreadConstraints" "topologySpread" "updateStrategy" "strategy" "livenessProbe" "probes.liveness" "readinessProbe" "probes.readiness" "startupProbe" "probes.startup" -}}
{{- range $name, $own := $ours }}{{ if hasKey $.Values $name }}{{ fail (printf "%s: this chart calls it %s." $name $own) }}{{ end }}{{ end -}}
{{- if hasKey .Values.autoscaling "enabled" }}{{ fail "autoscaling.enabled: this chart calls it autoscaling.by, which is none, cpu, in-flight, keda or keda-http." }}{{ end -}}
{{- range .Values.ingress.hosts }}{{ if kindIs "map" . }}{{ fail (printf "ingress.hosts: this chart has names in it, such as [%s]; paths are ingress.paths." (get . "host" | default "models.example.com")) }}{{ end }}{{ end -}}
{{- end -}}

{{/* Variables, wherever they are given; what the chart sets itself, or can't work in a pod, is refused. */}}
{{- define "tfs-proxy.checkSettings" -}}
{{- $owned := dict "SAGEMAKER_MODEL_URI" "model.uri" "SAGEMAKER_MULTI_MODEL" "model.multiModel" "TFS_PROXY_MODEL_NAME" "model.name" "TFS_PROXY_GRPC_PORT" "grpc.enabled" "TFS_PROXY_TLS_CERTIFICATE" "tls.secretName" "TFS_PROXY_TLS_KEY" "tls.secretName" "TFS_PROXY_TLS_CLIENT_CA" "tls.clientCa.secretName" "TFS_PROXY_API_KEYS" "keys.api.secretName" "TFS_PROXY_ADMIN_KEYS" "keys.admin.secretName" -}}
{{- $withKeys := or .Values.keys.api.secretName .Values.keys.admin.secretName -}}
{{- range include "tfs-proxy.variables" . | fromJsonArray -}}
{{- $what := printf "%s.%s" .place .name -}}
{{- $off := has (lower .value) (list "false" "0" "no" "off") -}}
{{- with get $owned .name }}{{ fail (printf "%s: the chart sets this variable; set %s in its place." $what .) }}{{ end -}}
{{- if has .name (list "SAGEMAKER_BIND_TO_PORT" "SAGEMAKER_SAFE_PORT_RANGE") }}{{ fail (printf "%s: probes, Service and NetworkPolicy know the ports 8080 and 8500; leave it out, and choose service.port." $what) }}{{ end -}}
{{- if and (eq .name "TFS_PROXY_HOST") (has (lower .value) (list "local" "localhost" "127.0.0.1" "::1")) }}{{ fail (printf "%s is %s: neither probes nor Service would reach the pods; leave it out." $what .value) }}{{ end -}}
{{- if and (eq .name "TFS_PROXY_NGINX") $off (or $withKeys $.Values.tls.secretName) }}{{ fail (printf "%s is %s, and keys and TLS need nginx: leave it out." $what .value) }}{{ end -}}
{{- if and (eq .name "SAGEMAKER_BATCH") .value (not $off) $withKeys }}{{ fail (printf "%s is %s, and SageMaker's jobs are answered without a key: leave it out, or keys." $what .value) }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Volumes and mounts of the user's beside the chart's own. */}}
{{- define "tfs-proxy.checkVolumes" -}}
{{- $volumes := dict "work" "/tmp" -}}
{{- if or .Values.model.volume.claimName .Values.model.volume.image.reference (ne .Values.model.cache.type "none") }}{{ $_ := set $volumes "model" (ternary "/opt/ml/models" "/opt/ml/model" .Values.model.multiModel) }}{{ end -}}
{{- if .Values.tls.secretName }}{{ $_ := set $volumes "tls" "/tls" }}{{ end -}}
{{- if .Values.tls.clientCa.secretName }}{{ $_ := set $volumes "client-ca" "/client-ca" }}{{ end -}}
{{- range $kind, $secret := .Values.keys }}{{ if $secret.secretName }}{{ $_ := set $volumes (printf "%s-keys" $kind) (printf "/keys/%s" $kind) }}{{ end }}{{ end -}}
{{- $names := keys $volumes -}}
{{- range .Values.volumes }}{{ if has .name $names }}{{ fail (printf "volumes: there is one of the name %s already; take another one." .name) }}{{ end }}{{ $names = append $names .name }}{{ end -}}
{{- $paths := values $volumes -}}
{{- range .Values.volumeMounts -}}
{{- $path := clean (toString .mountPath) -}}
{{- if has $path $paths }}{{ fail (printf "volumeMounts: something is mounted at %s already; take another path." $path) }}{{ end -}}
{{- $paths = append $paths $path -}}
{{- end -}}
{{- end -}}

{{- define "tfs-proxy.checkModel" -}}
{{- $model := .Values.model -}}
{{- $given := compact (list $model.uri $model.volume.claimName $model.volume.image.reference) -}}
{{- if not $given }}{{ fail "model.uri is empty: say where the model is, such as --set model.uri=s3://bucket/model.tar.gz, or give model.volume.claimName or model.volume.image.reference." }}{{ end -}}
{{- if gt (len $given) 1 }}{{ fail (printf "model: %s exclude each other; give one of model.uri, model.volume.claimName and model.volume.image.reference." (join " and " $given)) }}{{ end -}}
{{- if and $model.uri (not (regexMatch "^(s3|gs|az|https?)://[^/]+" $model.uri)) }}{{ fail (printf "model.uri is %q: it must begin with s3://, gs://, az:// or https://, and a name; for a folder in a volume set model.volume.claimName." $model.uri) }}{{ end -}}
{{- if and $model.multiModel (regexMatch "^https?://" $model.uri) }}{{ fail (printf "model.multiModel: archives below %s can't be listed; give a prefix at s3://, gs:// or az://, or a volume." $model.uri) }}{{ end -}}
{{- if and $model.multiModel $model.name }}{{ fail "model.name names one model, and model.multiModel serves many, each by its archive's name: leave one of the two out." }}{{ end -}}
{{- if and $model.volume.image.reference (semverCompare "<1.31-0" .Capabilities.KubeVersion.Version) }}{{ fail (printf "model.volume.image: Kubernetes %s has no image volumes; they came with 1.31." .Capabilities.KubeVersion.Version) }}{{ end -}}
{{- if ne $model.cache.type "none" -}}
{{- if not $model.uri }}{{ fail (printf "model.cache.type is %s, and model.uri is empty: a cache keeps what an address names; a volume needs none." $model.cache.type) }}{{ end -}}
{{- if $model.multiModel }}{{ fail "model.cache keeps one archive, and model.multiModel loads many on demand: leave one of the two out." }}{{ end -}}
{{- end -}}
{{- $limit := dig "limits" "ephemeral-storage" "" .Values.resources -}}
{{- if and $limit (ge (include "tfs-proxy.number" .Values.tmp.sizeLimit | float64) (include "tfs-proxy.number" $limit | float64)) }}{{ fail (printf "resources.limits.ephemeral-storage is %v, and tmp.sizeLimit is %s: a full /tmp would evict the pod; raise the limit above it." $limit .Values.tmp.sizeLimit) }}{{ end -}}
{{- end -}}

{{- define "tfs-proxy.checkCallers" -}}
{{- if and .Values.tls.clientCa.secretName (not .Values.tls.secretName) }}{{ fail "tls.clientCa.secretName asks clients for certificates, which needs TLS: set tls.secretName, too." }}{{ end -}}
{{- if and .Values.grpc.enabled (eq (int .Values.service.port) 8500) }}{{ fail "service.port is 8500, which is gRPC's: take another one, or set grpc.enabled: false." }}{{ end -}}
{{- with .Values.service -}}
{{- if and .externalTrafficPolicy (eq .type "ClusterIP") }}{{ fail "service.externalTrafficPolicy needs service.type NodePort or LoadBalancer." }}{{ end -}}
{{- if and (or .loadBalancerClass .loadBalancerSourceRanges) (ne .type "LoadBalancer") }}{{ fail (printf "service.loadBalancerClass and loadBalancerSourceRanges need service.type LoadBalancer; it is %s." .type) }}{{ end -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}{{ fail "ingress.enabled: ingress.hosts is empty; give the name that clients ask for." }}{{ end -}}
{{- with .Values.route -}}
{{- if and .enabled (not .parentRefs) }}{{ fail "route.enabled: route.parentRefs is empty; name a Gateway, such as [{name: gateway}]." }}{{ end -}}
{{- if and .grpc.enabled (not .enabled) }}{{ fail "route.grpc.enabled needs route.enabled." }}{{ end -}}
{{- if and .grpc.enabled (not (and .hostnames .grpc.hostnames)) }}{{ fail "route.hostnames or route.grpc.hostnames is empty: on one listener a name belongs to one kind of route, so give HTTP and gRPC names of their own." }}{{ end -}}
{{- range .grpc.hostnames }}{{ if has . $.Values.route.hostnames }}{{ fail (printf "route.grpc.hostnames: %s is in route.hostnames, too; on one listener a name belongs to one kind of route, so give gRPC a name of its own." .) }}{{ end }}{{ end -}}
{{- if and .grpc.enabled (not $.Values.grpc.enabled) }}{{ fail "route.grpc.enabled: grpc.enabled is false, so there is no gRPC to lead to." }}{{ end -}}
{{- end -}}
{{- with .Values.monitoring.podMonitor -}}
{{- if and .enabled $.Values.keys.api.secretName (not .authorization) }}{{ fail "monitoring.podMonitor.authorization is empty, and keys.api.secretName asks for a key at /metrics, too: give {credentials: {name: SECRET, key: KEY}}." }}{{ end -}}
{{- if and .enabled $.Values.tls.clientCa.secretName (not .tlsConfig) }}{{ fail "monitoring.podMonitor.tlsConfig is empty, and tls.clientCa.secretName asks for a certificate at /metrics, too: give cert and keySecret." }}{{ end -}}
{{- end -}}
{{- if and (gt (int .Values.gpu.count) 0) (not .Values.image.tag) (ne (include "tfs-proxy.variant" .) "gpu") }}{{ fail (printf "image.variant is %s, which uses no GPU, and gpu.count is %v: leave image.variant empty, or set gpu." .Values.image.variant .Values.gpu.count) }}{{ end -}}
{{- end -}}

{{- define "tfs-proxy.checkScaling" -}}
{{- with .Values.autoscaling -}}
{{- if ne .by "none" -}}
{{- if not (kindIs "invalid" $.Values.replicas) }}{{ fail (printf "replicas is %v, and autoscaling.by is %s, which decides how many pods there are: set autoscaling.minReplicas and maxReplicas, or by: none." $.Values.replicas .by) }}{{ end -}}
{{- if gt (int .minReplicas) (int .maxReplicas) }}{{ fail (printf "autoscaling.minReplicas is %v, above maxReplicas, %v." .minReplicas .maxReplicas) }}{{ end -}}
{{- if and (eq (int .minReplicas) 0) (ne .by "keda-http") }}{{ fail (printf "autoscaling.minReplicas is 0, and autoscaling.by is %s: without a pod nobody measures that; set by: keda-http, or at least 1." .by) }}{{ end -}}
{{- if and (eq .by "cpu") (not .cpu.utilization) }}{{ fail "autoscaling.cpu.utilization is 0, and autoscaling.by is cpu: give a percentage of resources.requests.cpu." }}{{ end -}}
{{- if and .cpu.utilization (ne .by "keda-http") (not (dig "requests" "cpu" "" $.Values.resources)) }}{{ fail (printf "autoscaling.by is %s with autoscaling.cpu.utilization, a percentage of resources.requests.cpu, which is not set." .by) }}{{ end -}}
{{- if and (eq .by "keda-http") $.Values.tls.secretName }}{{ fail "autoscaling.by is keda-http, whose interceptor asks the pods without TLS: end TLS in front of it, and leave tls.secretName empty." }}{{ end -}}
{{- if and (eq .by "keda-http") $.Values.route.enabled (not $.Values.route.hostnames) (not .kedaHttp.hosts) }}{{ fail "route.hostnames is empty, and KEDA's interceptor knows a release by the name that clients ask for: give it, or autoscaling.kedaHttp.hosts." }}{{ end -}}
{{- if and (eq .by "keda-http") $.Values.route.enabled $.Values.route.canary.service }}{{ fail "route.canary.service: with autoscaling.by keda-http both releases are behind the same interceptor, which divides nothing: use another autoscaler for a canary." }}{{ end -}}
{{- end -}}
{{- end -}}
{{- with .Values.strategy.rollingUpdate -}}
{{- if and (has (toString .maxSurge) (list "0" "0%")) (has (toString .maxUnavailable) (list "0" "0%")) }}{{ fail "strategy.rollingUpdate: maxSurge and maxUnavailable are both 0, so no pod could ever be replaced: raise one of them." }}{{ end -}}
{{- end -}}
{{- $limits := .Values.resources.limits | default dict -}}
{{- range $kind, $asked := .Values.resources.requests -}}
{{- $most := get $limits $kind -}}
{{- if and $most (gt (include "tfs-proxy.number" $asked | float64) (include "tfs-proxy.number" $most | float64)) }}{{ fail (printf "resources.requests.%s is %v, above resources.limits.%s, %v: no pod would be made; raise the limit, too." $kind $asked $kind $most) }}{{ end -}}
{{- end -}}
{{- with .Values.probes.startup -}}
{{- $start := add (mul .periodSeconds .failureThreshold) $.Values.minReadySeconds | int -}}
{{- if le (int $.Values.progressDeadlineSeconds) $start }}{{ fail (printf "progressDeadlineSeconds is %v, and probes.startup with minReadySeconds lasts %d: a rollout would count as failed while pods start; raise it." $.Values.progressDeadlineSeconds $start) }}{{ end -}}
{{- end -}}
{{- end -}}
