# SPDX-License-Identifier: Apache-2.0
# bench/rules.mk: make bench, bench-train, bench-generate, bench-peers, readme-results. Included by the Makefile.
# The whole suite in under five minutes, and a page of it; QUICK=1: in seconds, to see that it works.
bench: $(B)/bin/ucx-run $(B)/bin/gyre-perf $(SETUP_PYTHON_STAMP)
	@/usr/bin/python3 bench/bench.py --bin $(B)/bin --out $(B)/bench $(if $(filter-out 0,$(QUICK)),--quick) \
	    $(if $(filter command environment,$(origin RANKS)),--ranks '$(RANKS)') $(if $(ONLY),--only '$(ONLY)')

# A training step beside plain loops and PyTorch.
PLAIN_GPT := $(addprefix $(B)/bench/plain_gpt,-demo -demo-fast-math -124M-fast-math)
bench-train: all $(PLAIN_GPT) $(SETUP_PYTHON_STAMP)
	@/usr/bin/python3 bench/train.py --build '$(B)' --json '$(B)/bench/train.json' $(if $(BF16),--bf16) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	    $(if $(SHAPE),--shape $(SHAPE))
PLAIN_LOOPS = -std=gnu17 -O3 -march=native -fopenmp -Wall -Wextra
$(PLAIN_GPT): bench/plain_gpt.c
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(PLAIN_LOOPS) $(if $(findstring fast-math,$@),-ffast-math) $(if $(findstring 124M,$@),-DGPT2_124M) \
	    $< $(shell pkg-config --cflags --libs openblas) -lm -o $@

# What the trainer's bits cost gyre-generate.
bench-generate: all
	@/usr/bin/python3 bench/generate.py --build '$(B)' $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SHAPE),--shape $(SHAPE))

# A rank that computes while the others wait (RANKS, 8).
bench-waiters: $(B)/bin/ucx-run $(B)/bench/waiters
	@$(B)/bin/ucx-run -n $(or $(RANKS),8) $(B)/bench/waiters
$(B)/bench/waiters: $(call obj,bench/waiters.c) $(LIB_A)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@

# Instructions of small calls (RANKS, 2; BYTES, 8): callgrind counts alike on a busy machine, too.
bench-instructions: $(B)/bin/ucx-run $(B)/bin/gyre-perf
	@/usr/bin/python3 bench/instructions.py --bin $(B)/bin $(if $(RANKS),--ranks $(RANKS)) $(if $(BYTES),--bytes $(BYTES)) $(COLLECTIVES)

# ---- beside the peers
# One loop, linked once with each library. A peer that tools/setup could not install is left out, and the orchestrator
# says so; its program is then not made and is asked for again the next time.
BENCH_DIR  := $(B)/bench
BENCH_LOOP := $(call obj,bench/peers_loop.c)
PEER_PROGRAMS := $(addprefix $(BENCH_DIR)/peers-,openmpi mpich gloo ucc)
SETUP_PEERS_STAMP := $(S)/setup-peers.done

$(BENCH_DIR)/peers-gyre: $(BENCH_LOOP) $(call obj,bench/backend_gyre.c) $(LIB_A)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(LIB_A) $(LIBS) -o $@

$(BENCH_DIR)/limits: $(call obj,bench/limits.c)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< -pthread -o $@

$(BENCH_DIR)/peers-openmpi $(BENCH_DIR)/peers-mpich: $(BENCH_DIR)/peers-%: $(BENCH_LOOP) bench/backend_mpi.c \
    bench/peers.h $(SETUP_PEERS_STAMP)
	@mkdir -p $(@D)
	$(Q)if command -v mpicc.$* >/dev/null; then echo "  MPICC $@"; \
	    mpicc.$* -std=c17 -O2 -I. bench/backend_mpi.c $(BENCH_LOOP) -lm -o $@; fi

$(BENCH_DIR)/peers-gloo: $(BENCH_LOOP) bench/backend_gloo.cc bench/peers.h $(SETUP_PEERS_STAMP)
	@mkdir -p $(@D)
	$(Q)if [ -e /usr/include/gloo/allreduce.h ]; then echo "  CXX   $@"; \
	    g++ -std=c++17 -O2 -I. bench/backend_gloo.cc $(BENCH_LOOP) -lgloo -pthread -o $@; fi

# UCC is in no Debian: wherever pkg-config or the compiler finds it.
$(BENCH_DIR)/peers-ucc: $(BENCH_LOOP) bench/backend_ucc.c bench/peers.h
	@mkdir -p $(@D)
	$(Q)flags=$$(pkg-config --cflags --libs ucc 2>/dev/null || echo -lucc); \
	if echo '#include <ucc/api/ucc.h>' | $(CC) $$flags -E - >/dev/null 2>&1; then echo "  CC    $@"; \
	    $(CC) -std=gnu17 -O2 -D_GNU_SOURCE -I. bench/backend_ucc.c $(BENCH_LOOP) $$flags -lm -o $@; fi

BENCH_OPTIONS = $(if $(filter command environment,$(origin RANKS)),--ranks '$(RANKS)') \
    $(if $(COLLECTIVES),--collectives '$(COLLECTIVES)') $(if $(SIZES),--sizes '$(SIZES)') $(if $(COLD),--cold '$(COLD)') \
    $(if $(BUFFERS),--buffers '$(BUFFERS)') $(if $(CONTENDERS),--contenders '$(CONTENDERS)') \
    $(if $(ROUNDS),--rounds '$(ROUNDS)') $(if $(TIME),--time '$(TIME)') \
    $(if $(DEADLINE),--deadline '$(DEADLINE)') $(if $(GIVE_UP),--give-up '$(GIVE_UP)') \
    $(if $(filter 0,$(LIMITS)),--no-limits) $(if $(OUT),--out '$(OUT)')
bench-peers: $(B)/bin/ucx-run $(B)/bin/gyre-perf $(B)/bin/gyre-doctor $(BENCH_DIR)/peers-gyre $(BENCH_DIR)/limits $(PEER_PROGRAMS)
	@/usr/bin/python3 bench/bench_peers.py --bin $(BENCH_DIR) --gyre $(B)/bin --work $(BENCH_DIR) $(BENCH_OPTIONS)

# The README's plot and table; RESULTS: a folder of bench/results, or else the one that it names.
.PHONY: readme-results
readme-results: $(SETUP_PYTHON_STAMP)
	@/usr/bin/python3 bench/readme.py $(RESULTS)

FORMATTED = $(shell find $(CORE_MODULES) $(TRAIN_MODULES) tools tests examples bench bindings include -name '*.[ch]' -o -name '*.cu' \
    -o -path 'tests/emulated/*.cc' 2>/dev/null)
format:
	$(call needs,$(CLANG_FORMAT),clang-format)
	$(Q)$(CLANG_FORMAT) -i $(FORMATTED)

words:
	$(Q)sh tools/check-words
