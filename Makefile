# kubedyno: `make help` lists what there is.

export CGO_ENABLED ?= 0
GO       ?= go
BIN      := bin
LAB_SRC  := $(shell find lab -name '*.go' -o -name go.mod -o -name go.sum -o -name ldflags 2>/dev/null)
UI_SRC   := $(shell find ui/src -type f) ui/build.mjs ui/package.json ui/package-lock.json ui/tsconfig.json ui/static/standin.html
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: $(BIN)/kubedyno-lab $(BIN)/kubedyno-coredns ui/static/page.js kubedyno ## build kubedyno, kubedyno-lab, kubedyno-coredns, kubedyno-pause and the report page into bin/

.PHONY: kubedyno
kubedyno: ui/static/page.js
	$(GO) build -trimpath -o $(BIN)/kubedyno ./cmd/kubedyno
	$(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/kubedyno-pause ./cmd/kubedyno-pause

$(BIN)/kubedyno-lab: $(LAB_SRC)
	cd lab && $(GO) build -trimpath -ldflags "$$(./hack/ldflags)" -o ../$(BIN)/kubedyno-lab ./cmd/kubedyno-lab

$(BIN)/kubedyno-coredns: $(LAB_SRC)
	cd lab && $(GO) build -trimpath -ldflags '-s -w' -o ../$(BIN)/kubedyno-coredns ./cmd/kubedyno-coredns

ui/node_modules: ui/package.json ui/package-lock.json
	cd ui && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

ui/static/page.js: ui/node_modules $(UI_SRC)
	cd ui && npm run --silent build
	@touch $@

.PHONY: test
test: build chromium ## build all and pass all tests
	./hack/test

.PHONY: demo
demo: build ## build all, then find and fix a control plane's bottlenecks, one after another
	./hack/demo

.PHONY: bench
bench: build ## measure kubedyno against kwok, in turns, on one control plane
	cd bench && $(GO) run . -kubedyno ../$(BIN)/kubedyno -lab ../$(BIN)/kubedyno-lab $(BENCHFLAGS)

.PHONY: accuracy
accuracy: build ## measure how right diagnoses are: hours; goes on where it was ended
	$(BIN)/kubedyno fault campaign --out accuracy --healthy 60 --pairs 20
	$(BIN)/kubedyno fault accuracy accuracy -o json > docs/accuracy.json
	$(BIN)/kubedyno fault accuracy docs/accuracy.json -o hitrates > diagnose/hitrates.json
	$(BIN)/kubedyno fault accuracy docs/accuracy.json -o markdown > docs/accuracy.md

SEED ?= 1
.PHONY: accuracy-sample
accuracy-sample: build ## the same with 24 of its runs, drawn at random (SEED=…), and the kept recordings again: half an hour
	$(BIN)/kubedyno fault campaign --out accuracy-sample-$(SEED) --healthy 60 --pairs 20 --sample 24 --seed $(SEED)
	$(GO) test -count=1 -run '^TestRecordings$$' ./diagnose/detectors
	@echo; echo "docs/accuracy.md, which this sample should agree with:"
	@$(BIN)/kubedyno fault accuracy docs/accuracy.json | sed '1,/^$$/d'

CASES ?= cases-run
.PHONY: cases
cases: build ## run the published investigations again, with what must come out (CASEFLAGS=--quick: the short form)
	KUBEDYNO_LAB=$(CURDIR)/$(BIN)/kubedyno-lab $(BIN)/kubedyno case run --all --out $(CASES) $(CASEFLAGS)

.PHONY: lint
lint: ui/node_modules ## vet, staticcheck, gofmt and the page's type check
	@test -z "$$(git ls-files '*.go' | xargs gofmt -l)" || { echo "not gofmt-ed:"; git ls-files '*.go' | xargs gofmt -l; exit 1; }
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	cd lab && $(GO) vet -trimpath ./...
	cd ui && npm run --silent check

.PHONY: generate
generate: ## write generated files anew: flag lists, detector docs, the page's types
	$(GO) generate ./...

.PHONY: bpf
bpf: ## compile the eBPF programs anew (needs clang-14 and llvm-strip-14)
	cd collect/blockio && GOPACKAGE=blockio $(GO) run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -tags linux kernel kernel.bpf.c -- -O2 -Wall -Werror

.PHONY: screenshots
screenshots: ui/static/page.js chromium ## write pictures of each view of the page, light and dark, to docs/img
	KUBEDYNO_SCREENSHOTS=$(CURDIR)/docs/img $(GO) test ./report ./serve -count 1 -run '^TestScreenshots$$'

.PHONY: chromium
chromium:
ifeq ($(CHROMIUM),)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing Debian's chromium, in which the report page is tested"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	else echo "chromium is missing: install it (Debian: apt-get install chromium); the report page is tested in it" >&2; exit 1; fi
endif

.PHONY: clean
clean: ## remove what the other targets made
	rm -rf $(BIN) demo ui/node_modules ui/.test ui/static/page.js ui/static/page.css
