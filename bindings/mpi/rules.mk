# SPDX-License-Identifier: Apache-2.0
# bindings/mpi/rules.mk: libgyre-mpi-openmpi.so and libgyre-mpi-mpich.so, one source compiled with each MPI that has a
# compiler here, and the launcher gyre-mpi. Included by the Makefile.
# MPICC_openmpi, MPICC_mpich: the compiler wrappers, by name or path; empty: leave this library out.
MPICC_openmpi ?= mpicc.openmpi
MPICC_mpich ?= mpicc.mpich
MPI_SRC := $(filter-out bindings/mpi/launch.c,$(wildcard bindings/mpi/*.c))
FOREIGN_C += $(MPI_SRC)
MPI_KINDS := $(if $(SANITIZE),,$(foreach k,openmpi mpich,$(if $(MPICC_$(k)),$(if $(shell command -v $(MPICC_$(k)) 2>/dev/null),$(k)))))
LIB_MPI := $(MPI_KINDS:%=$(B)/lib/libgyre-mpi-%.so)
.PHONY: mpi
mpi: $(LIB_MPI) $(B)/bin/gyre-mpi
	@for k in openmpi mpich; do case ' $(MPI_KINDS) ' in *" $$k "*) ;; \
	    *) echo "  libgyre-mpi-$$k.so is left out: there is no mpicc.$$k (MPICC_$$k= names another one), or this build has a sanitizer" ;; esac; done
all: mpi
# Another compiler wrapper: built anew.
$(B)/mpicc-%: FORCE
	@mkdir -p $(@D)
	@echo '$(MPICC_$*)' | cmp -s - $@ || echo '$(MPICC_$*)' >$@
.PRECIOUS: $(B)/mpicc-%
# -isystem: the headers of MPI have warnings of their own.
$(B)/lib/libgyre-mpi-%.so: $(MPI_SRC) bindings/mpi/shim.h $(wildcard include/gyre/*.h) $(SHARE)/flags $(B)/mpicc-% | $(LIB_SO)
	@mkdir -p $(@D)
	@echo "  MPICC $@"
	$(Q)$(MPICC_$*) -shared -Wl,-soname,$(@F) -Wl,-z,nodelete -Wl,-z,defs '-Wl,-rpath,$$ORIGIN' $(CPPFLAGS) \
	    $$($(MPICC_$*) -show | tr ' ' '\n' | sed -n 's/^-I/-isystem /p') $(ALL_CFLAGS) $(LDFLAGS) $(MPI_SRC) \
	    -DGYRE_LIBRARY='"$(notdir $(LIB_SO))"' -ldl -lm -pthread -o $@
# MPI_LAUNCHER PATH,LIBRARIES: the program at PATH, with the folder of libgyre-mpi from that of PATH
MPI_LAUNCHER = $(CC) $(CPPFLAGS) -DGYRE_MPI_LIBRARIES='"$(2)"' $(ALL_CFLAGS) $(LDFLAGS) bindings/mpi/launch.c -o $(1)
$(B)/bin/gyre-mpi: bindings/mpi/launch.c $(SHARE)/flags
	@mkdir -p $(@D)
	@echo "  CC    $@"
	$(Q)$(call MPI_LAUNCHER,$@,../lib)
