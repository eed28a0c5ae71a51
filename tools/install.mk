# SPDX-License-Identifier: Apache-2.0
# tools/install.mk: make install, install-lib, install-train, uninstall. Included by the Makefile.
# LIBDIR: where libraries go, below PREFIX (Debian: /usr/lib/x86_64-linux-gnu)
LIBDIR ?= $(PREFIX)/lib
L := $(subst $(PREFIX)/,,$(LIBDIR))
$(if $(filter /%,$(L)),$(error LIBDIR='$(LIBDIR)' is not below PREFIX='$(PREFIX)'; give both, such as PREFIX=/usr LIBDIR=/usr/lib64))
$(if $(filter install% uninstall,$(MAKECMDGOALS)),$(if $(word 2,$(PREFIX)),$(error PREFIX='$(PREFIX)' has a space, which pkg-config and make take for an end)))
# gyre.pc has it, and is read from other folders
$(if $(filter install% uninstall,$(MAKECMDGOALS)),$(if $(filter /%,$(PREFIX)),,$(error PREFIX='$(PREFIX)' is not an absolute path)))
HEADERS  := $(wildcard include/gyre/*.h include/gyre/*.cuh)
CPP_HEADER := bindings/cpp/gyre/gyre.hpp
MAN_PAGES := $(wildcard docs/man/*.[137])
# of these, what goes with libgyre-train
TRAIN_HEADERS := include/gyre/train.h
TRAIN_PAGES   := docs/man/gyre_train_create.3
man_path = share/man/man$(subst .,,$(suffix $(1)))/$(notdir $(1))
# NAME.3=PAGE.3 for each further name of a page; asked for only where it is used
MAN_ALIASES = $(shell sh tools/man-names $(filter %.3,$(MAN_PAGES)))
alias_path = share/man/man3/$(firstword $(subst =, ,$(1)))
# The documents, as they lie in the source tree, so that their links work; recipes of gyre-plan and gyre-train apart.
DOCUMENTS := LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md $(wildcard docs/*.md $(foreach d,contributing data data/runs \
    images tutorials,docs/$(d)/*.*)) $(wildcard $(addprefix examples/*.,c cpp cu f90 py) examples/kubernetes/*)
RECIPES   := $(wildcard examples/recipes/*.json)
INSTALLED_DOCUMENTS = $(addprefix share/doc/gyre/,$(DOCUMENTS) examples/recipes) $(RECIPES:examples/%=share/gyre/%)
INSTALLED = $(INSTALLED_DOCUMENTS) $(HEADERS) include/gyre/gyre.hpp $(addprefix $(L)/,libgyre.so.$(SOVERSION) libgyre.so libgyre.a pkgconfig/gyre.pc \
    libgyre-malloc.so libgyre-nccl.so.2 gyre-nccl/libnccl.so.2 gyre-nccl/libnccl.so libgyre-train.a pkgconfig/gyre-train.pc) $(CMAKE_FILES:%=$(L)/cmake/gyre/%) $(COMPLETIONS) \
    $(LIB_MPI:$(B)/lib/%=$(L)/%) $(addprefix bin/,gyre-mpi $(TOOLS) $(PERF_NAMES)) $(foreach m,$(MAN_PAGES),$(call man_path,$(m))) \
    $(foreach a,$(MAN_ALIASES),$(call alias_path,$(a)))
TO := $(DESTDIR)$(PREFIX)
# Everyone may read what is installed, whatever umask the one who installs has.
I = $(Q)umask 022;

install-lib: $(LIB_SO) $(LIB_A) $(LIB_MALLOC) $(LIB_NCCL)
	$(I) install -d $(addprefix '$(TO)'/,include/gyre $(L)/pkgconfig $(L)/cmake/gyre share/man/man3)
	$(I) install -m 644 $(filter-out $(TRAIN_HEADERS),$(HEADERS)) $(CPP_HEADER) '$(TO)'/include/gyre/
	$(I) install -m 755 $(LIB_SO) $(LIB_MALLOC) '$(TO)'/$(L)/
	$(I) ln -sf libgyre.so.$(SOVERSION) '$(TO)'/$(L)/libgyre.so
	$(I) $(if $(LIB_NCCL),install -m 755 $(LIB_NCCL) '$(TO)'/$(L)/ && install -d '$(TO)'/$(L)/gyre-nccl && \
	    for name in libnccl.so.2 libnccl.so; do ln -sf ../libgyre-nccl.so.2 '$(TO)'/$(L)/gyre-nccl/$$name; done,:)
	$(I) install -m 644 $(LIB_A) '$(TO)'/$(L)/
	$(I) printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/$(L)' 'includedir=$${prefix}/include' '' 'Name: gyre' \
	    'Description: collectives on shared memory, UCX and GPUs' 'Version: $(VERSION)' \
	    'Requires.private: $(PKGS_CORE)' 'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -lgyre' \
	    'Libs.private: $(filter-out $(CORE_LIBS) -Wl$(,)--as-needed,$(LIBS))' > '$(TO)'/$(L)/pkgconfig/gyre.pc
	$(I) $(foreach f,$(CMAKE_FILES),$(FILL_CMAKE) tools/package/$(f).in > '$(TO)'/$(L)/cmake/gyre/$(f) &&) true
	$(I) install -m 644 $(filter-out $(TRAIN_PAGES),$(filter %.3,$(MAN_PAGES))) '$(TO)'/share/man/man3/
	$(I) $(foreach a,$(filter-out %=$(notdir $(TRAIN_PAGES)),$(MAN_ALIASES)),echo '.so man3/$(lastword $(subst =, ,$(a)))' >'$(TO)'/$(call alias_path,$(a));)
	@echo "libgyre, its headers and manual are installed under $(TO)"

install-train: install-lib $(LIB_TRAIN)
	$(I) install -m 644 $(TRAIN_HEADERS) '$(TO)'/include/gyre/
	$(I) install -m 644 $(LIB_TRAIN) '$(TO)'/$(L)/
	$(I) printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/$(L)' 'includedir=$${prefix}/include' '' 'Name: gyre-train' \
	    'Description: training of GPT models over many ranks' 'Version: $(VERSION)' \
	    'Requires: $(PKGS_CORE) $(PKGS_JSON) $(PKGS_TRAIN)' 'Cflags: -I$${includedir}' \
	    'Libs: -L$${libdir} -l:libgyre-train.a -l:libgyre.a $(SENTENCEPIECE_LIBS) $(filter-out $(CORE_LIBS) -Wl$(,)--as-needed,$(LIBS))' \
	    > '$(TO)'/$(L)/pkgconfig/gyre-train.pc
	$(I) install -m 644 $(TRAIN_PAGES) '$(TO)'/share/man/man3/
	$(I) $(foreach a,$(filter %=$(notdir $(TRAIN_PAGES)),$(MAN_ALIASES)),echo '.so man3/$(lastword $(subst =, ,$(a)))' >'$(TO)'/$(call alias_path,$(a));)

install: install-train $(TOOL_BINS) mpi
	$(I) install -d $(addprefix '$(TO)'/,bin share/man/man1 share/man/man7)
	$(I) install -m 755 $(TOOL_BINS) '$(TO)'/bin/
	$(I) $(if $(LIB_MPI),install -m 755 $(LIB_MPI) '$(TO)'/$(L)/ && \
	    $(call MPI_LAUNCHER,'$(TO)'/bin/gyre-mpi,../$(L)),:)
	$(I) $(foreach p,$(PERF_NAMES),ln -sf gyre-perf '$(TO)'/bin/$(p);)
	$(I) $(INSTALL_COMPLETIONS)
	$(I) $(foreach m,$(filter-out %.3,$(MAN_PAGES)),install -m 644 $(m) '$(TO)'/$(call man_path,$(m));)
	$(I) $(foreach f,$(DOCUMENTS),install -D -m 644 $(f) '$(TO)'/share/doc/gyre/$(f);)
	$(I) install -d '$(TO)'/share/gyre/recipes && install -m 644 $(RECIPES) '$(TO)'/share/gyre/recipes/
	$(I) ln -sfn ../../../gyre/recipes '$(TO)'/share/doc/gyre/examples/recipes
	@echo "installed under $(TO)"

uninstall:
	$(Q)rm -f $(addprefix '$(TO)'/,$(INSTALLED) $(FORTRAN_INSTALLED))
	$(Q)for d in include/gyre share/gyre share/doc/gyre $(L)/cmake/gyre $(L)/gyre-nccl; do \
	    [ ! -d '$(TO)'/$$d ] || find '$(TO)'/$$d -depth -type d -empty -delete; done
	@echo "removed from $(TO)"
