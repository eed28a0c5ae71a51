# SPDX-License-Identifier: Apache-2.0
# tools/package/rules.mk: what `make install` takes from here, make dist, make deb, make check-deb. Included
# by the Makefile.
CMAKE_FILES := gyre-config.cmake gyre-config-version.cmake
# from lib/cmake/gyre up to the prefix, and words that the files name
FILL_CMAKE = sed -e 's|@VERSION@|$(VERSION)|g' -e 's|@SOVERSION@|$(SOVERSION)|g' -e 's|@PKGS_CORE@|$(PKGS_CORE)|' \
    -e 's|@PKGS_TRAIN@|$(PKGS_JSON) $(PKGS_TRAIN)|' -e 's|@TRAIN_PRIVATE@|$(SENTENCEPIECE_LIBS)|' -e 's|@UP@|$(subst $() ,/,$(foreach d,$(subst /, ,$(L)) cmake gyre,..))|' \
    -e 's|@LIBS_PRIVATE@|$(filter-out $(CORE_LIBS) -Wl$(,)--as-needed,$(LIBS))|'

# One file serves all tools, under the name by which the shell looks for each.
COMPLETED = $(TOOLS) $(if $(LIB_MPI),gyre-mpi)
COMPLETIONS = $(addprefix share/bash-completion/completions/,$(COMPLETED)) share/zsh/site-functions/_gyre
INSTALL_COMPLETIONS = install -d '$(TO)'/share/bash-completion/completions '$(TO)'/share/zsh/site-functions && \
    sh tools/package/completions bash $(B)/bin $(COMPLETED) >'$(TO)'/share/bash-completion/completions/$(firstword $(TOOLS)) && \
    $(foreach t,$(wordlist 2,99,$(COMPLETED)),ln -sf $(firstword $(TOOLS)) '$(TO)'/share/bash-completion/completions/$(t) &&) \
    sh tools/package/completions zsh $(B)/bin $(COMPLETED) >'$(TO)'/share/zsh/site-functions/_gyre

# The last commit: what is not committed is not in it. Times, owners and order are the commit's, so that bytes
# are, too.
DIST := build/dist/gyre-$(VERSION).tar.gz
.PHONY: dist deb check-deb
dist:
	@sh tools/package/dist '$(DIST)' 'gyre-$(VERSION)'
deb: dist
	@sh tools/package/deb '$(DIST)' '$(VERSION)'
check-deb: deb
	@bash tools/package/check-deb
