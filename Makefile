# What can be done here: make help

GO ?= go
SQLC = $(GO) tool -modfile=tools/go.mod sqlc
VALE = CGO_ENABLED=1 $(GO) tool -modfile=tools/go.mod vale --no-global

# Services that use others' libraries, in a module of their own.
EXAMPLES = examples/optimistic
EXAMPLES_SQLC = cd $(EXAMPLES) && $(GO) tool -modfile=../../tools/go.mod sqlc

# ent generates its code before the examples are compiled. It is not committed.
ENT := $(EXAMPLES)/ent/client.go

.DEFAULT_GOAL := help
.PHONY: help demo docs test test-faults faults-report test-race fuzz soak bench peers generate verify lint cross matrix

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(ENT): $(EXAMPLES)/ent/schema/account.go $(EXAMPLES)/go.mod
	cd $(EXAMPLES) && $(GO) tool ent generate ./ent/schema

demo: ## a flash sale on a real Postgres and a real MariaDB or MySQL; installs what is missing
	@scripts/servers.sh
	$(GO) run ./cmd/dblock demo

# make lint vets the tests as well. A test binary links a quarter faster without the tables of a debugger. Without paths, two
# checkouts share what is compiled.
GO_TEST := $(GO) test -vet=off -ldflags=-w -trimpath

# The longest start first, so that no long one is left to run alone at the end.
PACKAGES := ./pglock ./mysqllock ./queue/pgqueue ./queue/mysqlqueue ./inventory/pginventory ./inventory/mysqlinventory \
	./cmd/dblock ./internal/programs ./internal/faultmatrix ./...

# Many tests wait for servers and deadlines rather than for a processor. Each package has servers of its own, with 1,000
# connections each. Tests of faults have crowds: more than two of them exceed the connections of a server.
TOGETHER := -p 2 -parallel 4 -timeout 30m
FAULTS := -p 2 -parallel 2 -timeout 30m -run Faults

test: $(ENT) ## what each package promises, on Postgres and one server of the MySQL family; installs what is missing
	@scripts/servers.sh
	$(GO_TEST) $(TOGETHER) -count=1 -skip Faults $(PACKAGES)
	cd $(EXAMPLES) && $(GO_TEST) $(TOGETHER) -count=1 -skip Faults ./...

test-faults: $(ENT) ## the tests with Faults in their names: cuts, kills, freezes, silent networks, crowds
	@scripts/servers.sh
	$(GO_TEST) $(FAULTS) -count=1 $(PACKAGES)
	cd $(EXAMPLES) && $(GO_TEST) $(FAULTS) -count=1 ./...

test-race: $(ENT) ## both of these under the race detector; needs a C compiler
	@scripts/servers.sh
	CGO_ENABLED=1 $(GO) test -p 1 -parallel 2 -timeout 30m -race -count=1 ./...
	cd $(EXAMPLES) && CGO_ENABLED=1 $(GO) test -p 1 -parallel 2 -timeout 30m -race -count=1 ./...

fuzz: ## each fuzz test for a while: FUZZ=30s
	GO=$(GO) scripts/fuzz.sh $(or $(FUZZ),30s)

FAULTS_REPORT ?= --runs 3

faults-report: ## docs/faults.md: each fault, each promise, each engine; FAULTS_REPORT="--runs 10 --only network"
	@scripts/servers.sh
	$(GO_TEST) -count=1 -timeout 0 ./internal/faultmatrix -args -report -json $(CURDIR)/docs/faults.json \
		-markdown $(CURDIR)/docs/faults.md $(FAULTS_REPORT)

soak: ## the tests of faults again and again, for as long as asked: SOAK=10m
	@scripts/servers.sh
	GO=$(GO) scripts/soak.sh $(or $(SOAK),10m)

bench: ## every way of selling, held against direct, and the limits of the machine: BENCH="--rounds 5"
	@scripts/servers.sh
	$(GO) run ./cmd/dblock bench seckill/direct 'seckill/*' --clients 2000 $(BENCH)
	$(GO) run ./cmd/dblock bench 'limit/*' $(BENCH)

peers: ## a moment of every benchmark against other locks and queues; installs Redis and etcd
	@scripts/servers.sh
	@scripts/servers.sh peers
	cd bench/peers && $(GO_TEST) -count=1 ./...

generate: ## db/ and the examples' queries, and the list of objects, from queries/ and migrations/
	$(SQLC) generate
	$(EXAMPLES_SQLC) generate
	DBLOCK_WRITE_OBJECTS=1 $(GO) test -count=1 -run 'TestObjects$$' ./migrations

verify: ## db/ and the examples are up to date, and every query of db/ prepares on every server found
	@scripts/servers.sh
	$(SQLC) diff
	$(EXAMPLES_SQLC) diff
	$(GO) test -count=1 -run 'TestObjects$$' ./migrations
	scripts/vet.sh $(SQLC)
	$(GO) test -count=1 -run 'TestBatchesPrepare$$' ./internal/mysql

docs: ## the site of docs/, in site/; installs mkdocs
	@scripts/servers.sh docs
	mkdocs build --quiet --strict

lint: $(ENT) ## format, vet, static checks, tidy modules, links and language; installs a C compiler if there is none
	@scripts/servers.sh cc
	$(VALE) --glob='*.{go,md}' .
	@for file in queries/*/*.sql; do $(VALE) --output=line --ext=.lua <$$file || { echo "in $$file"; exit 1; }; done
	@test -z "$$(gofmt -l .)" || { echo "not formatted by gofmt:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) test -count=1 -run TestDocs .
	for module in bench/peers $(EXAMPLES); do (cd $$module && \
		$(GO) vet ./... && $(GO) tool -modfile=../../tools/go.mod staticcheck ./... && $(GO) mod tidy -diff) || exit 1; done

# No file is for one processor alone: each system once, and 32 bits.
PLATFORMS := linux/386 windows/amd64 darwin/arm64

cross: ## all packages and their tests compile for other systems and for 32 bits
	@for p in $(PLATFORMS); do echo "go vet for $$p"; GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(GO) vet ./... || exit 1; done

matrix: ## the tests on every server found, version by version (scripts/fetch-servers.sh brings more)
	@scripts/servers.sh
	scripts/matrix.sh
