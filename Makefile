# Everything a fresh machine needs is installed by the targets themselves; calling one twice costs nothing.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TEST := $(VENV)/.ready-test
READY_DEMO := $(VENV)/.ready-demo

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^##@/ { print "\n" substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Start: see it work

.PHONY: demo
demo: $(READY_DEMO) try-nginx  ## train a small model, serve it, post real images and check the answers
	@$(BIN)/python code_examples/digits/train.py
	@$(BIN)/python code_examples/digits/demo.py

.PHONY: serve
serve: $(READY_DEMO) try-nginx  ## serve MODEL=path/to/model.tar.gz (default: the demo's) on PORT=8080
ifndef MODEL
	@$(BIN)/python code_examples/digits/train.py
endif
	$(BIN)/tfs-proxy serve $(or $(MODEL),code_examples/digits/build/model.tar.gz) --port $(or $(PORT),8080)

.PHONY: examples
examples: $(READY) try-nginx try-curl  ## run every example by the commands of its README, compare the answers (ONLY="digits ...")
	@$(BIN)/python scripts/run_examples.py $(ONLY)

.PHONY: nginx
nginx:  ## install nginx from the distribution (needs root)
	@scripts/install-program nginx

.PHONY: clean
clean:  ## remove the virtual environment, caches and built examples
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build code_examples/*/build

##@ Develop: what belongs to a change

.PHONY: lint
lint: $(READY)  ## ruff, formatting and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: test test-all test-rest test-contract test-oldest
test: $(READY_TEST) try-nginx  ## run what holds the core: contract, unit tests, a server of one model
	$(BIN)/python scripts/ring.py contract unit core
test-all: $(READY) test test-rest  ## run all tests, the fast ones first
test-rest: $(READY) try-nginx try-curl try-prometheus try-chromium  ## run the tests that `make test` leaves out
	@scripts/vendor-axe
	$(BIN)/python scripts/ring.py slow rest
	@$(MAKE) --no-print-directory test-judges-short
	@$(MAKE) --no-print-directory attack-short
	@$(MAKE) --no-print-directory test-container
test-contract: $(READY) try-nginx  ## try what users can see, through public doors alone, against what is recorded
	$(BIN)/python scripts/ring.py contract
test-oldest: $(READY) try-nginx  ## try the same with the oldest packages that pyproject.toml allows, in build/oldest
	@scripts/make-oldest build/oldest
	build/oldest/bin/python -m pytest -W "ignore:Protobuf gencode version" tests/contract

.PHONY: docs docs-reference docs-examples docs-links
docs: $(READY) try-nginx try-chromium  ## build the documentation site into build/site; broken links and anchors are errors
	@PYTHONPATH=tests $(BIN)/python scripts/screenshot.py
	@scripts/vendor-mermaid
	$(BIN)/zensical build --strict --clean
docs-reference: $(READY)  ## write the reference pages that come from the code and the chart
	@$(BIN)/python scripts/docs_reference.py
docs-examples: $(READY) try-nginx try-curl  ## run the commands of the documentation's pages (ONLY="start/migrate.md ...")
	@$(BIN)/python scripts/run_examples.py --docs $(ONLY)
docs-links: $(READY)  ## ask every outside link of the documentation; needs the network
	@$(BIN)/python scripts/check_links.py

.PHONY: contract-changes
contract-changes: $(READY)  ## record that CHANGELOG.md says what changed in tests/contract (SAME_FOR_USERS=1: nothing)
	@$(BIN)/python scripts/contract_changes.py $(if $(SAME_FOR_USERS),--same-for-users)

.PHONY: budget
budget: $(READY)  ## lower the tokens and modules that each room may have to what it has now
	@$(BIN)/python scripts/lower_budget.py

.PHONY: schemas
schemas: $(READY)  ## write the JSON schemas of the files that commands read
	@$(BIN)/python scripts/json_schemas.py

.PHONY: dashboards
dashboards: $(READY)  ## write the dashboards of deploy/ from their scripts
	@$(BIN)/python scripts/dashboards.py

.PHONY: manifests
manifests: $(READY)  ## write the manifests of deploy/kubernetes: what deploy/chart renders with its examples
	@scripts/install-judge chart
	@scripts/render-manifests

.PHONY: protos
protos: $(READY)  ## compile src/tfs_proxy/wire/protos/schema/*.proto into the descriptor set that the package ships
	$(BIN)/python scripts/compile_protos.py
	$(BIN)/ruff format --quiet src/tfs_proxy/wire/protos/schema
	$(BIN)/ruff check --quiet --fix src/tfs_proxy/wire/protos/schema

.PHONY: demo-archive
demo-archive: $(READY)  ## train the model that `tfs-proxy demo` serves, and write it and its pictures into the package
	@$(BIN)/python scripts/demo_archive.py

.PHONY: known-ops
known-ops: $(READY)  ## write the names of the ops that `check` knows, from the installed TensorFlow
	$(BIN)/python scripts/known_ops.py

.PHONY: lock
lock: $(READY)  ## resolve pyproject.toml into requirements.lock, for Python 3.11 to 3.13 at once
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		$(UPGRADE) --extra dev pyproject.toml -o requirements.lock

.PHONY: lock-judges
lock-judges: $(READY)  ## resolve the newest versions of the judges, and of the servers that `make bench` compares with (ONLY="kserve ...")
	@scripts/install-judge --lock $(or $(ONLY),$(JUDGES) release awscli benchmarks/peers/litserve benchmarks/peers/bentoml)

.PHONY: refresh
refresh: $(READY)  ## take the base images' newest digests and the newest versions of all packages, and say what changed
	@scripts/refresh

##@ Prove: what takes long, or other programs

JUDGES := chart kserve mlserver openapi_client sagemaker3 sbom schemathesis stores tritonclient typing workflows
.PHONY: judges test-judges test-judges-short
judges: $(READY)  ## install the clients of other projects that judge ours, each into build/judges/NAME
	@scripts/install-judge $(JUDGES)
test-judges: judges try-nginx  ## let them all judge the running stack, those that take long, too
	@scripts/install-judge awscli sagemaker2
	$(BIN)/python -m pytest tests/judges
test-judges-short: judges try-nginx  ## the same without what takes long
	$(BIN)/python scripts/ring.py judges

.PHONY: test-container
test-container: $(READY)  ## run the tests that need real containers, if a Docker engine can be had
	@if scripts/docker-engine --if-allowed; then scripts/build-image embedded; scripts/install-judge chart sagemaker2 sagemaker3 sbom; \
		else [ $$? = 3 ]; fi
	$(BIN)/python scripts/ring.py container

.PHONY: test-cluster
test-cluster: $(READY) image-embedded  ## run the chart in a cluster of kind: needs docker, kind, kubectl, helm and the network
	@scripts/try-cluster

.PHONY: attack attack-short
attack: $(READY) try-nginx  ## hostile input, slow clients, full machines and kills, in 15 minutes
	ATTACK=long $(BIN)/python -m pytest tests/attack
attack-short: $(READY) try-nginx  ## the same in two minutes
	$(BIN)/python scripts/ring.py attack

.PHONY: prove-transform
prove-transform: $(READY)  ## batch transform: 20 kills lose nothing, a 2 GB object needs little memory
	TRANSFORM_KILLS=20 TRANSFORM_OBJECT_MB=2048 $(BIN)/python -m pytest -s --timeout 600 \
		tests/processes/transform/test_local.py -k "killed or memory"

.PHONY: prove-ray
prove-ray: $(READY) try-nginx  ## batch transform on three nodes of Ray, of which two die, and a Ctrl-C (WRITE=1: into the docs)
	$(BIN)/python benchmarks/transform_ray.py $(if $(WRITE),--write)

.PHONY: prove-openapi
prove-openapi: $(READY) try-nginx  ## schemathesis sends 10,000 requests: every answer is as the OpenAPI document says
	@scripts/install-judge schemathesis
	SCHEMATHESIS_CASES=$(or $(CASES),10000) $(BIN)/python -m pytest -s --timeout 1800 tests/judges/test_schemathesis.py

.PHONY: prove-interleavings
prove-interleavings: $(READY)  ## 5,000 random interleavings of loads, unloads, requests and deaths of models
	INTERLEAVINGS=5000 $(BIN)/python -m pytest tests/unit/run/many_models/test_interleavings.py

.PHONY: gpu-check gpu-check-wheels
gpu-check: $(READY)  ## try what reads a GPU and needs no TensorFlow; says what it could not try
	@$(BIN)/python scripts/gpu_check.py
gpu-check-wheels: $(READY)  ## put our wheel and what it needs with Python 3.12 into build/gpu-check, for a machine without network
	@rm -rf build/gpu-check
	@$(BIN)/hatchling build -t wheel -d build/gpu-check
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version 3.12 \
		--platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux2014_x86_64 \
		-d build/gpu-check "tfs-proxy[gpu] @ file://$$(ls $(CURDIR)/build/gpu-check/*.whl)"
	@size=$$(du -sm build/gpu-check | cut -f1); echo "build/gpu-check: $$size MB"; test "$$size" -lt 64

.PHONY: bench
bench: $(READY) try-nginx  ## measure rates, CPU time, start-up and memory; WRITE=1 writes them into the documentation
	@scripts/install-program wrk --if-allowed
	$(BIN)/python benchmarks/serving.py $(if $(WRITE),--write) $(OPTIONS)
	$(BIN)/python benchmarks/python_servers.py $(if $(WRITE),--write)
	$(if $(WRITE),$(BIN)/python benchmarks/scale.py --write)

.PHONY: bench-multi-model
bench-multi-model: $(READY) try-nginx  ## load 300 and 40 models: seconds, memory, cost of a request, p99 while others load
	@scripts/install-program wrk --if-allowed
	$(BIN)/python benchmarks/multi_model.py
	$(BIN)/python benchmarks/multi_model_cost.py
	$(BIN)/python benchmarks/multi_model_loading.py

.PHONY: bench-open-inference
bench-open-inference: $(READY) try-nginx  ## compare the Open Inference Protocol with TensorFlow Serving's
	@scripts/install-program wrk --if-allowed
	$(BIN)/python benchmarks/open_inference.py

.PHONY: audit
audit: $(READY)  ## ask for known vulnerabilities of what requirements.lock pins; RELEASE=1 fails if some are not checked
	@$(BIN)/python scripts/audit.py $(if $(RELEASE),--release)

##@ Release: images, and files to publish

.PHONY: image-cpu image-gpu image-embedded
image-cpu:  ## build tfs-proxy:cpu, with the official model server (OPTIONS="--build-arg SCRIPT_LIBRARIES=false")
	@scripts/build-image cpu $(OPTIONS)
image-gpu:  ## build tfs-proxy:gpu, with the official model server and CUDA
	@scripts/build-image gpu $(OPTIONS)
image-embedded:  ## build tfs-proxy:embedded, with the embedded model server; needs no image but the base
	@scripts/build-image embedded $(OPTIONS)

.PHONY: sbom
sbom:  ## copy SBOM and licence list out of tfs-proxy:IMAGE (default: embedded) into build/
	@scripts/copy-sbom $(or $(IMAGE),embedded)

.PHONY: release
release: $(READY) try-nginx try-chromium  ## make and judge the files of a release in build/release (REHEARSAL=1: of a version that is not decided)
	@scripts/vendor-mermaid
	@scripts/install-judge release chart
	$(BIN)/python scripts/release.py $(if $(REHEARSAL),--rehearsal)
	$(BIN)/python scripts/ring.py release

# Where a release's images and chart stand; a fork writes its own into [project.urls].
IMAGES ?= $(shell sed -n 's|^Images = "https://\(.*\)"|\1|p' pyproject.toml)
CHART ?= $(shell sed -n 's|^Chart = "https://\(.*\)"|\1|p' pyproject.toml)
# Name and digest of what was pushed, for the steps of a workflow that attest it.
PUSHED = printf 'name=%s\ndigest=%s\n' $(1) $(2) | tee -a "$${GITHUB_OUTPUT:-/dev/null}"
DIGEST = "$$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' $(1))"
.PHONY: publish publish-docs publish-notes save-image load-image publish-image publish-manifest publish-chart
publish: $(READY)  ## upload the files of `make release` to a package index (UV_PUBLISH_URL, UV_PUBLISH_TOKEN; see uv publish)
	$(BIN)/uv publish build/release/tfs_proxy-*
publish-docs: $(READY)  ## add the documentation of `make release` to the branch gh-pages of this clone's origin
	@if [ -n "$${GH_TOKEN:-}" ]; then gh auth setup-git; fi
	$(BIN)/python scripts/publish_docs.py "$$(git remote get-url origin)"
publish-notes:  ## make a release of the tag TAG on GitHub, with the files and notes of `make release`
	gh release create "$(TAG)" --verify-tag --title "$(TAG)" --notes-file build/release/RELEASE_NOTES.md \
		build/release/*.whl build/release/*.tar.gz build/release/*.tgz build/release/*.json build/release/SHA256SUMS
save-image:  ## write tfs-proxy:IMAGE into build/image/
	mkdir -p build/image
	docker save tfs-proxy:$(IMAGE) | gzip -1 >build/image/$(IMAGE).tar.gz
load-image:  ## take tfs-proxy:IMAGE out of build/image/
	docker load <build/image/$(IMAGE).tar.gz
publish-image:  ## push tfs-proxy:IMAGE to the registry of [project.urls], as TAG
	docker tag tfs-proxy:$(IMAGE) $(IMAGES):$(TAG)
	docker push $(IMAGES):$(TAG)
	@$(call PUSHED,$(IMAGES),$(call DIGEST,$(IMAGES):$(TAG)))
publish-manifest:  ## make TAG of what was pushed for each of ARCHITECTURES
	docker buildx imagetools create --prefer-index=false --tag $(IMAGES):$(TAG) \
		$(ARCHITECTURES:%=$(IMAGES):$(TAG)-%)
	@$(call PUSHED,$(IMAGES),$(call DIGEST,$(IMAGES):$(TAG)))
publish-chart:  ## push the chart of `make release` to the registry of [project.urls]
	helm push build/release/$(notdir $(CHART))-*.tgz oci://$(patsubst %/,%,$(dir $(CHART))) 2>&1 | tee build/pushed-chart
	@$(call PUSHED,$(CHART),"$$(sed -n 's/^Digest: //p' build/pushed-chart)")

.PHONY: try-chromium
try-chromium:  # the driver's package brings the browser
	@command -v chromedriver >/dev/null || scripts/install-program chromium-driver --if-allowed

.PHONY: try-nginx
try-nginx:
	@scripts/install-program nginx --if-allowed

.PHONY: try-curl
try-curl:
	@scripts/install-program curl --if-allowed

.PHONY: try-prometheus
try-prometheus:
	@scripts/install-program prometheus --if-allowed

$(READY): requirements.lock pyproject.toml scripts/make-venv
	@PYTHON=$(PYTHON) scripts/make-venv $(VENV)
	@touch $(READY) $(READY_TEST) $(READY_DEMO)  # it has the packages of all

$(READY_TEST): requirements.lock pyproject.toml scripts/make-venv
	@PYTHON=$(PYTHON) scripts/make-venv $(VENV) test
	@touch $(READY_TEST)

$(READY_DEMO): requirements.lock pyproject.toml scripts/make-venv
	@PYTHON=$(PYTHON) scripts/make-venv $(VENV) embedded scripts scripts-large
	@touch $(READY_DEMO)
