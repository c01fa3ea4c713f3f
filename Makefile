# weft - build, check, install. `make help` lists what there is to make.
#
# One non-recursive Makefile: every lib/FOLDER is a static library, every
# tools/GROUP/weft-NAME.c a program. Objects go to build/VARIANT/.
#   V=1 shows commands, DEV=1 turns warnings into errors, CC=clang, SAN=address,undefined

CC      ?= gcc
ifeq ($(origin CC),default)
CC      := gcc
endif
PREFIX  ?= /usr/local
DESTDIR ?=
ARCH    ?= native
SAN     ?=
DEV     ?=
WEFT_DATA ?=

comma   := ,
VARIANT := $(notdir $(CC))$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(DEV),-dev)
O       := build/$(VARIANT)
Q       := $(if $(V),,@)

WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
           -Wpointer-arith -Wwrite-strings $(if $(DEV),-Werror)
OPTIM   := $(if $(SAN),-O1 -g -fno-omit-frame-pointer,-O2 -g)
CPPFLAGS += -D_POSIX_C_SOURCE=200809L -Ilib
CFLAGS  += -std=c17 $(OPTIM) $(WARN) $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all)
LDFLAGS += $(if $(SAN),-fsanitize=$(SAN))

# ---- what the machine has -------------------------------------------------------------
MPICC      ?= mpicc
MPI_CFLAGS := $(shell $(MPICC) --showme:compile 2>/dev/null)
MPI_LIBS   := $(shell $(MPICC) --showme:link 2>/dev/null)
probe       = $(shell printf '%s\n' '$(1)' 'int main(void){return 0;}' | \
              $(CC) -x c - -o /dev/null $(2) >/dev/null 2>&1 && echo yes)
HAVE_DNNL  := $(call probe,\#include <oneapi/dnnl/dnnl.h>,-ldnnl)
HAVE_BLAS  := $(call probe,\#include <cblas.h>,-lopenblas)
LPSOLVE_DIR := $(firstword $(wildcard /usr/lib/lp_solve))
HAVE_LPSOLVE := $(call probe,\#include <lpsolve/lp_lib.h>,$(if $(LPSOLVE_DIR),-L$(LPSOLVE_DIR)) -llpsolve55 -lm -ldl)
LPSOLVE_LIBS := $(if $(LPSOLVE_DIR),-L$(LPSOLVE_DIR) -Wl$(comma)-rpath$(comma)$(LPSOLVE_DIR)) -llpsolve55 -lm -ldl
# The matrix product comes from oneDNN, else OpenBLAS, else the plain C reference.
ifeq ($(HAVE_DNNL),yes)
GEMM := dnnl
GEMM_LIBS := -ldnnl
else ifeq ($(HAVE_BLAS),yes)
GEMM := openblas
GEMM_LIBS := -lopenblas
else
GEMM := reference
GEMM_LIBS :=
endif

BASE_LIBS := -ljansson -lsqlite3 -lm
libs_common  :=
libs_device  := $(GEMM_LIBS) -fopenmp
libs_comm    := $(MPI_LIBS)
libs_solve   := $(LPSOLVE_LIBS) -pthread

# Kernels are compiled for the machine they run on; everything else is portable.
cflags_device := -O3 -march=$(ARCH) -fopenmp -DWEFT_GEMM_$(GEMM) $(if $(SAN),,-fno-math-errno -fno-trapping-math)
cflags_comm   := $(MPI_CFLAGS) -O3
cflags_solve  := -pthread

# ---- folders, lowest floor first --------------------------------------------------------
FLOORS := common solve data checkpoint model plan program cost device comm exec
define floor_rules
srcs_$(1) := $$(sort $$(wildcard lib/$(1)/*.c))
objs_$(1) := $$(patsubst lib/%.c,$(O)/lib/%.o,$$(srcs_$(1)))
$$(objs_$(1)): CFLAGS += $$(cflags_$(1))
$(O)/libweft-$(1).a: $$(objs_$(1))
	@rm -f $$@
	$$(Q)$$(AR) rcs $$@ $$^
endef
$(foreach f,$(FLOORS),$(eval $(call floor_rules,$(f))))

# Which floors each tool stands on (its library order is the reverse).
uses_weft-profile-op   := common model plan program cost device
uses_weft-profile-comm := common cost comm
uses_weft-predict      := common model plan program cost
uses_weft-search       := common solve model plan program cost
uses_weft-solve        := common solve
uses_weft-run          := common data checkpoint model plan program device comm exec
TOOL_SRCS := $(sort $(wildcard tools/*/weft-*.c))
TOOLS     := $(basename $(notdir $(TOOL_SRCS)))
BINS      := $(addprefix $(O)/bin/,$(TOOLS))
reverse    = $(if $(1),$(call reverse,$(wordlist 2,$(words $(1)),$(1))) $(firstword $(1)))
archives   = $(foreach f,$(call reverse,$(1)),$(O)/libweft-$(f).a)
floor_libs = $(foreach f,$(call reverse,$(1)),$(libs_$(f)))

define tool_rules
$(1)_dir  := $$(patsubst %/,%,$$(dir $$(filter %/$(1).c,$$(TOOL_SRCS))))
# The tool's own file, and the other files of its folder that are not a tool's main file.
$(1)_objs := $$(patsubst %.c,$(O)/%.o,$$(filter %/$(1).c,$$(TOOL_SRCS)) \
             $$(filter $$(patsubst weft-%,$$($(1)_dir)/%,$(1))%.c,$$(filter-out $$(TOOL_SRCS),$$(wildcard $$($(1)_dir)/*.c))))
$$($(1)_objs): CFLAGS += $$(foreach f,$$(uses_$(1)),$$(filter-out -O3 -march=%,$$(cflags_$$(f))))
$(O)/bin/$(1): $$($(1)_objs) $$(call archives,$$(uses_$(1)))
	@mkdir -p $$(@D)
	@echo "  LINK    $$(@F)"
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$($(1)_objs) $$(call archives,$$(uses_$(1))) $$(call floor_libs,$$(uses_$(1))) $$(BASE_LIBS)
endef

all: $(BINS)
	@ln -sfn $(O)/bin bin
$(foreach t,$(TOOLS),$(eval $(call tool_rules,$(t))))

# Flags are a dependency: changing them rebuilds.
$(O)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(cflags_device) $(MPI_CFLAGS)' | cmp -s - $@ || \
	 echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(cflags_device) $(MPI_CFLAGS)' > $@
FORCE:

$(O)/%.o: %.c $(O)/flags
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# ---- tests --------------------------------------------------------------------------------
# tests/unit/FLOOR-NAME.c links the floors up to FLOOR; tests/mpi/*.c run under mpirun.
UNIT_SRCS := $(sort $(wildcard tests/unit/*.c))
UNIT_BINS := $(patsubst tests/%.c,$(O)/tests/%,$(UNIT_SRCS))
unit_uses_common  := common
unit_uses_solve   := common solve
unit_uses_data    := common data
unit_uses_checkpoint := common checkpoint
unit_uses_model   := common model
unit_uses_plan    := common model plan
unit_uses_program := common model plan program
unit_uses_cost    := common model plan program cost
unit_uses_device  := common model plan program device
unit_uses_comm    := common comm
unit_uses_exec    := common data checkpoint model plan program device comm exec
define unit_rules
$(1)_uses := $$(unit_uses_$$(firstword $$(subst -, ,$$(notdir $(1)))))
$(1).o: CFLAGS += $$(foreach f,$$($(1)_uses),$$(filter-out -O3 -march=%,$$(cflags_$$(f))))
$(1): $(1).o $$(call archives,$$($(1)_uses))
	@echo "  LINK    $$(@F)"
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$< $$(call archives,$$($(1)_uses)) $$(call floor_libs,$$($(1)_uses)) $$(BASE_LIBS)
endef
$(foreach t,$(UNIT_BINS),$(eval $(call unit_rules,$(t))))
unit: $(UNIT_BINS)

-include $(shell find $(O) -name '*.d' 2>/dev/null)

clean:
	rm -rf build bin

.PHONY: all unit clean FORCE
