# weft - build, check, install. `make help` lists what there is to make.
#
# One non-recursive Makefile: every lib/FOLDER is a static library, every
# tools/GROUP/weft-NAME.c a program. Objects go to build/VARIANT/.

CC      ?= gcc
ifeq ($(origin CC),default)
CC      := gcc
endif
PREFIX  ?= /usr/local
DESTDIR ?=
ARCH    ?= native
SAN     ?=
DEV     ?=
DEPS    ?=
WEFT_DATA ?=

.DEFAULT_GOAL := all
comma   := ,
VARIANT := $(notdir $(CC))$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(DEV),-dev)
O       := build/$(VARIANT)
Q       := $(if $(V),,@)

WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
           -Wpointer-arith -Wwrite-strings $(if $(DEV),-Werror)
OPTIM   := $(if $(SAN),-O1 -g -fno-omit-frame-pointer,-O2 -g)
USER_FLAGS := $(strip $(CPPFLAGS) $(CFLAGS) $(LDFLAGS))
CPPFLAGS += -D_POSIX_C_SOURCE=200809L -Ilib
CFLAGS  += -std=c17 $(OPTIM) $(WARN) $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all)
LDFLAGS += $(if $(SAN),-fsanitize=$(SAN))

# ---- what the machine has -------------------------------------------------------------
# scripts/probe.sh compiles and links a call of each library; build/VARIANT/found.mk keeps the answers.
MPICC ?= mpicc
WITH_CUDA ?= auto
ifneq ($(filter-out help clean uninstall,$(or $(MAKECMDGOALS),all)),)
$(shell CC='$(CC)' MPICC='$(MPICC)' FLAGS='$(USER_FLAGS)' WITH_CUDA='$(WITH_CUDA)' \
  CUDA_HOME='$(CUDA_HOME)' sh scripts/probe.sh $(O)/found.mk)
include $(O)/found.mk
ifeq ($(WITH_CUDA)$(HAVE_CUDA),yes)
MISSING := $(MISSING)$(if $(MISSING),$(comma) )CUDA: $(CUDA_LACKS) (CUDA_HOME=DIR says where it is)
endif
endif
# The matrix product comes from oneDNN, else OpenBLAS, else the plain C reference.
GEMM := $(or $(if $(HAVE_DNNL),dnnl),$(if $(HAVE_BLAS),openblas),reference)
GEMM_LIBS := $(or $(if $(HAVE_DNNL),-ldnnl),$(if $(HAVE_BLAS),-lopenblas))

BASE_LIBS := -ljansson -lsqlite3 -lm
libs_common  := -pthread
libs_device  := $(GEMM_LIBS) -fopenmp
libs_comm    := $(MPI_LIBS)
libs_solve   := $(LPSOLVE_LIBS) -pthread
libs_nccl    :=
libs_cuda    := $(if $(HAVE_CUDA),$(CUDA_LIBS) -lstdc++)

# A search goes through these millions of times.
SEARCHED ?= $(if $(SAN),,-O3)
# Kernels are compiled for the machine they run on; everything else is portable. Functions that pass
# its widest vectors are called by none but each other, so how they are passed is nobody's concern.
cflags_device := -O3 -Wno-psabi -march=$(ARCH) -fopenmp -DWEFT_GEMM_$(GEMM) $(if $(SAN),,-fno-math-errno -fno-trapping-math)
cflags_comm   := $(MPI_CFLAGS) -O3
cflags_solve  := -pthread $(SEARCHED)
# It looks at every number that it writes.
cflags_checkpoint := $(if $(SAN),,-O3)
$(foreach f,common text model plan program cost search aceso,$(eval cflags_$(f) := $(SEARCHED)))
cflags_cuda   := $(if $(HAVE_CUDA),$(CUDA_CFLAGS) -DWEFT_CUDA_FOLDERS='"$(CUDA_FOLDERS)"')
cflags_nccl   := $(cflags_cuda) $(cflags_comm)
# Kernels are compiled for Ampere, with what newer chips can translate, and for Hopper.
NVCC_ARCHS ?= 80 90
NVCC_FLAGS := -std=c++17 -O3 --compress-mode=size -Ilib $(CUDA_CFLAGS) -Xcompiler -Wall,-Wextra \
              --resource-usage -Xptxas -warn-spills,-warn-lmem-usage \
              $(foreach a,$(filter-out 80,$(NVCC_ARCHS)),-gencode arch=compute_$(a),code=sm_$(a)) \
              $(if $(filter 80,$(NVCC_ARCHS)),-gencode arch=compute_80$(comma)code=[sm_80$(comma)compute_80])

# ---- folders, lowest floor first --------------------------------------------------------
FLOORS := common solve data text checkpoint model import plan program cost search aceso device comm exec cuda nccl keep
# Rooms of a large floor have an order too, and in these floors the files: none calls one that calls it.
# scripts/lint.sh checks both.
ACYCLIC := common solve data text checkpoint import program cost aceso search comm keep
ROOMS_search := budget graph space evaluate pool bound algorithms run
# Without CUDA the floor of GPUs has what says so, and the names of GPUs; without cuDNN weft's own kernels
# convolve, without NCCL the hosts carry what is between GPUs.
CUDA_NONE := $(addprefix lib/cuda/cuda_,none.c kind.c workspace.c workspace_attention.c)
LEFT_OUT  := lib/cuda/cuda_none.c $(if $(HAVE_CUDNN),lib/cuda/cuda_dnn_none.c,$(addprefix lib/cuda/cuda_dnn,.c _attention.c _convolution.c _plan.c _name.c _descriptor.c))
cuda_srcs := $(if $(HAVE_CUDA),$(filter-out $(LEFT_OUT),$(wildcard lib/cuda/*.c)),$(CUDA_NONE))
nccl_srcs := $(if $(HAVE_NCCL),$(filter-out lib/nccl/nccl_none.c,$(wildcard lib/nccl/*.c)),lib/nccl/nccl_none.c)
cuda_kernels := $(if $(HAVE_CUDA),$(sort $(wildcard lib/cuda/*.cu)))
# What is compiled once for each type of elements (kernel_type.h): those of 16 bits beside floats.
HALVES := bf16 f16
typed_device := $(shell grep -l '"kernel_type\.h"' lib/device/*.c)
define floor_rules
srcs_$(1) := $$(sort $$(or $$($(1)_srcs),$$(wildcard lib/$(1)/*.c lib/$(1)/*/*.c)))
objs_$(1) := $$(patsubst lib/%.c,$(O)/lib/%.o,$$(srcs_$(1))) \
  $$(patsubst lib/%.cu,$(O)/lib/%.cu.o,$$($(1)_kernels)) \
  $$(foreach t,$(HALVES),$$(patsubst lib/%.c,$(O)/lib/%-$$(t).o,$$(typed_$(1))))
$$(objs_$(1)): CFLAGS += $$(cflags_$(1))
$(O)/libweft-$(1).a: $$(objs_$(1))
	@rm -f $$@
	$$(Q)$$(AR) rcs $$@ $$^
endef
$(foreach f,$(FLOORS),$(eval $(call floor_rules,$(f))))

# Which floors each tool stands on (its library order is the reverse).
uses_weft-profile-op   := common model plan program cost device cuda
uses_weft-profile-comm := common data checkpoint model plan program cost device comm exec cuda nccl
uses_weft-profile-fit  := common model plan program cost
uses_weft-predict      := common model plan program cost
uses_weft-search       := common solve model plan program cost search aceso
uses_weft-solve        := common solve
uses_weft-ckpt         := common checkpoint model
uses_weft-import       := common checkpoint model import
uses_weft-tokens       := common text
uses_weft-plan         := common model plan program
uses_weft-run          := common data checkpoint model plan program cost device comm exec cuda nccl keep
uses_weft-keep         := common checkpoint keep
uses_weft-sample       := common data text checkpoint model plan program device comm exec
TOOL_SRCS := $(sort $(wildcard tools/*/weft-*.c))
TOOLS     := $(basename $(notdir $(TOOL_SRCS)))
BINS      := $(addprefix $(O)/bin/,$(TOOLS))
reverse    = $(if $(1),$(call reverse,$(wordlist 2,$(words $(1)),$(1))) $(firstword $(1)))
archives   = $(foreach f,$(call reverse,$(1)),$(O)/libweft-$(f).a)
# As the linker gets them: of GPUs all functions, for they are found by name (cuda_compute.c).
linked     = $(patsubst %-cuda.a,-Wl$(comma)--whole-archive %-cuda.a -Wl$(comma)--no-whole-archive,$(call archives,$(1)))
floor_libs = $(foreach f,$(call reverse,$(1)),$(libs_$(f)))
on_floors  = $(call linked,$(1)) $(call floor_libs,$(1))
# A program of the objects among its prerequisites, and these libraries.
define link
@mkdir -p $(@D)
@echo "  LINK    $(@F)"
$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(1) $(BASE_LIBS)
endef

# What tools of one folder share.
shares_weft-search     := words plan_galvatron plan_job plan_line plan_make plan_megatron plan_others plan_shell plan_toml
shares_weft-plan       := words
shares_weft-profile-op   := device_kind
shares_weft-profile-comm := device_kind

define tool_rules
$(1)_dir  := $$(patsubst %/,%,$$(dir $$(filter %/$(1).c,$$(TOOL_SRCS))))
# The tool's own file, and the other files of its folder whose names begin as its own or as what it shares.
$(1)_objs := $$(patsubst %.c,$(O)/%.o,$$(filter %/$(1).c,$$(TOOL_SRCS)) \
             $$(filter $$(foreach n,$$(patsubst weft-%,%,$(1)) $$(shares_$(1)),$$($(1)_dir)/$$(n)%.c),\
               $$(filter-out $$(TOOL_SRCS),$$(wildcard $$($(1)_dir)/*.c))))
$$($(1)_objs): CFLAGS += $$(foreach f,$$(uses_$(1)),$$(filter-out -O3 -march=%,$$(cflags_$$(f))))
$(O)/bin/$(1): $$($(1)_objs) $$(call archives,$$(uses_$(1)))
	$$(call link,$$(call on_floors,$$(uses_$(1))))
endef

# What devices and collectives take beside the arenas is said by files that know programs alone
# (program/workspace.h): who predicts it links these, not their floors.
WORKSPACES := $(addprefix $(O)/lib/,device/cpu_workspace.o comm/comm_workspace.o \
              cuda/cuda_workspace.o cuda/cuda_workspace_attention.o)
$(O)/bin/weft-predict $(O)/bin/weft-search: $(WORKSPACES)

all: $(BINS)
	@ln -sfn $(O)/bin bin
$(foreach t,$(TOOLS),$(eval $(call tool_rules,$(t))))

# Flags are a dependency: changing them rebuilds, a new PREFIX only the floor that knows where models
# are installed. Without the libraries nothing is compiled.
# (:=, because what an object adds to CFLAGS holds for its prerequisites too.)
FLAGS := $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(cflags_device) $(MPI_CFLAGS)
NVCC_ALL := $(NVCC) $(NVCC_FLAGS)
# Where the C compiler is ccache under its name, nvcc goes through it too.
CACHED   := $(filter %/ccache,$(realpath $(shell command -v $(CC))))
$(O)/flags: export STAMP = $(FLAGS)
$(O)/prefix: export STAMP = $(PREFIX)
$(O)/nvcc: export STAMP = $(NVCC_ALL)
$(objs_cuda): $(O)/nvcc
$(objs_model): $(O)/prefix
$(objs_model): CPPFLAGS += -DWEFT_SHARE='"$(PREFIX)/share/weft"'
$(O)/flags $(O)/prefix $(O)/nvcc: FORCE
	$(if $(MISSING),$(error not found: $(MISSING); `make deps$(if $(filter-out gcc,$(CC)), CC=$(CC))` brings what is missing))
	@mkdir -p $(@D)
	@printf '%s\n' "$$STAMP" | cmp -s - $@ || printf '%s\n' "$$STAMP" > $@
FORCE:

$(O)/%.o: %.c $(O)/flags
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# What the compiler remarks is shown, and kept for tests/cli/nvcc.sh: ptxas has it only as it compiles. So is
# what each kernel takes of a multiprocessor, for tests/described.
$(O)/%.cu.o: %.cu $(O)/nvcc
	@mkdir -p $(@D)
	@echo "  NVCC    $<"
	$(Q)$(CACHED) $(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< 2>$(@:.o=.usage); \
	    status=$$?; grep -v $(USAGE) $(@:.o=.usage) >$(@:.o=.said); cat $(@:.o=.said) >&2; exit $$status
USAGE := -e ' bytes gmem' -e 'Compiling entry function' -e 'Function properties for' -e 'bytes stack frame' \
         -e 'Used [0-9]* registers' -e 'time = [0-9.]* ms'
# wgmma is of Hopper alone, which its target says with an a.
$(O)/lib/cuda/cuda_attention_wgmma.cu.o: NVCC_FLAGS := $(subst compute_90,compute_90a,$(subst sm_90,sm_90a,$(NVCC_FLAGS)))

define half_rules
$(O)/%-$(1).o: %.c $(O)/flags
	@mkdir -p $$(@D)
	@echo "  CC      $$< $(1)"
	$$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) -DWEFT_$(1) -MMD -MP -c -o $$@ $$<
endef
$(foreach t,$(HALVES),$(eval $(call half_rules,$(t))))

# ---- tests --------------------------------------------------------------------------------
# tests/unit/FLOOR-NAME.c links the floors up to FLOOR; tests/mpi/*.c run under mpirun.
UNIT_SRCS := $(sort $(wildcard tests/unit/*.c))
UNIT_BINS := $(patsubst tests/%.c,$(O)/tests/%,$(UNIT_SRCS))
unit_uses_common  := common
unit_uses_solve   := common solve
unit_uses_data    := common data
unit_uses_text    := common text
unit_uses_checkpoint := common checkpoint
unit_uses_model   := common checkpoint model
unit_uses_import  := common checkpoint model import
unit_uses_plan    := common model plan
unit_uses_program := common model plan program
unit_uses_cost    := common model plan program cost
unit_uses_search  := common solve model plan program cost search
unit_uses_aceso   := common aceso
unit_uses_device  := common model plan program device
unit_uses_cuda    := common model plan program device cuda
unit_uses_comm    := common comm
unit_uses_keep    := common checkpoint keep
unit_uses_exec    := common data checkpoint model plan program device comm exec
$(O)/tests/unit/search-polls: LDFLAGS += -Wl,--wrap=interrupted
define unit_rules
$(1)_uses := $$(unit_uses_$$(firstword $$(subst -, ,$$(notdir $(1)))))
$(1).o: CFLAGS += $$(foreach f,$$($(1)_uses),$$(filter-out -O3 -march=%,$$(cflags_$$(f))))
$(1): $(1).o $$(call archives,$$($(1)_uses))
	$$(call link,$$(call on_floors,$$($(1)_uses)))
endef
$(foreach t,$(UNIT_BINS),$(eval $(call unit_rules,$(t))))
$(O)/tests/unit/cuda-workspace: $(O)/lib/comm/comm_workspace.o
$(O)/tests/unit/cost-cold: $(O)/tools/profile/profile-op-cold.o
$(O)/tests/unit/cuda-pair-rows: $(O)/tools/profile/profile-op-pairs.o

# tests/emulate/cuda-*.c run the kernels of GPUs on the CPU: the same files, compiled as C++ against
# tests/emulate/emulate.h. Without a compiler of C++ there are none to run, and they say so; nor is there
# an emulator to try.
EMU_SRCS  := $(sort $(filter-out %/cuda-watch.c %/cuda-traffic.c $(if $(HAVE_CXX),,%/cuda-emulate.c),$(wildcard tests/emulate/cuda-*.c)))
EMU_BINS  := $(patsubst tests/emulate/%.c,$(O)/tests/unit/%,$(EMU_SRCS))
EMULATOR  := $(addprefix $(O)/tests/emulate/,emulate.o emulate_copy.o)
UNWATCHED := $(O)/tests/emulate/watch_none.o
COMPUTE   := $(O)/lib/cuda/cuda_compute.o
EMULATED  := $(if $(HAVE_CXX),$(patsubst %.cu,$(O)/%.emulated.o,$(sort $(wildcard lib/cuda/*.cu tests/emulate/*.cu))) \
             $(addprefix $(O)/lib/cuda/,cuda_attention.o cuda_convolution.o cuda_multi.o cuda_orthogonal.o cuda_pair_norm.o \
             cuda_workspace.o cuda_workspace_attention.o))
EMU_FLAGS := -std=c++17 -O1 -g -DWEFT_EMULATE -Itests/emulate -fno-exceptions -fno-rtti -Wall \
             -Wno-unknown-pragmas $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all)
$(O)/%.emulated.o: %.cu $(O)/flags
	@mkdir -p $(@D)
	@echo "  CC      $< emulated"
	$(Q)$(CC) -x c++ $(CPPFLAGS) $(EMU_FLAGS) -MMD -MP -c -o $@ $<
$(EMU_BINS): $(O)/tests/unit/%: $(O)/tests/emulate/%.o $(EMULATOR) $(UNWATCHED) $(EMULATED) \
             $(COMPUTE) $(call archives,$(unit_uses_device))
	$(call link,$(call on_floors,$(unit_uses_device)))

# The same tests with every access of the kernels watched (tests/emulate/watch.h): the compiler calls the
# watcher's functions, not those of the sanitizer's library, which is not linked. cuda-watch tries the watcher,
# cuda-traffic counts transactions: so vectors stay what they are.
WATCH_FLAGS := $(filter-out -fsanitize=% -fno-sanitize%,$(EMU_FLAGS)) -fsanitize=thread \
               $(if $(findstring clang,$(CC)),-mllvm -tsan,-fno-tree-sra --param=tsan)-distinguish-volatile=1
WATCHED   := $(patsubst %.emulated.o,%.watched.o,$(EMULATED))
WATCHER   := $(patsubst %.c,$(O)/%.o,$(filter-out %_none.c,$(sort $(wildcard tests/emulate/watch*.c))))
WATCHED_BINS := $(addprefix $(O)/tests/unit/,$(addsuffix -watched,cuda-kernels cuda-attention cuda-multi cuda-residual cuda-unpack))
WATCH_OWN  := $(addprefix $(O)/tests/unit/,cuda-watch cuda-traffic)
WATCH_BINS := $(if $(HAVE_CXX),$(WATCH_OWN) $(WATCHED_BINS))
$(O)/%.watched.o: %.cu $(O)/flags
	@mkdir -p $(@D)
	@echo "  CC      $< watched"
	$(Q)$(CC) -x c++ $(CPPFLAGS) $(WATCH_FLAGS) -MMD -MP -c -o $@ $<
$(WATCHED_BINS): $(O)/tests/unit/%-watched: $(O)/tests/emulate/%.o
$(WATCH_OWN): $(O)/tests/unit/%: $(O)/tests/emulate/%.o
$(WATCH_BINS): $(EMULATOR) $(WATCHER) $(WATCHED) $(COMPUTE) $(call archives,$(unit_uses_device))
	$(call link,$(call on_floors,$(unit_uses_device)))

# tests/products asks fakes of cuBLASLt and of cuDNN for products and convolutions; headers are the toolkit's.
# What turns weights is emulated. cuda-engines asks cuDNN itself, cuda-descriptions cuBLASLt.
PRODUCT_BINS := $(if $(HAVE_CUDA),$(addprefix $(O)/tests/unit/,cuda-products cuda-descriptions cuda-pairs \
                $(if $(HAVE_CUDNN),cuda-engines cuda-attention-library $(if $(EMULATED),cuda-convolutions))))
of_library    = $(addprefix $(O)/lib/cuda/,$(addsuffix .o,$(1)))
fake_dnn          := $(addprefix $(O)/tests/products/,cudnn.o cudnn_graph.o)
dnn               := $(if $(HAVE_CUDNN),cuda_dnn cuda_dnn_attention cuda_dnn_convolution cuda_dnn_name cuda_dnn_plan cuda_dnn_descriptor,cuda_dnn_none)
objs_products     := $(O)/tests/products/cublaslt.o $(call of_library,cuda_fastest cuda_choices cuda_linear cuda_pair_gelu cuda_product cuda_product_fused cuda_product_known cuda_product_pick)
objs_convolutions := $(fake_dnn) $(EMULATOR) $(UNWATCHED) $(O)/lib/cuda/cuda_turn.emulated.o \
                     $(call of_library,cuda_check cuda_choices cuda_fastest cuda_convolution cuda_conv_known cuda_conv_pick $(dnn))
$(O)/tests/products/%.o: CFLAGS += $(cflags_cuda) -fopenmp
$(O)/tests/unit/cuda-products $(O)/tests/unit/cuda-pairs: $(objs_products) $(call of_library,cuda_check) $(O)/tests/fake/library.o
$(O)/tests/unit/cuda-descriptions: $(call of_library,cuda_check cuda_choices cuda_fastest cuda_library cuda_product cuda_product_known cuda_product_pick)
$(O)/tests/unit/cuda-pairs: $(call of_library,cuda_pair)
$(O)/tests/unit/cuda-engines: $(call of_library,$(dnn) cuda_library)
$(O)/tests/unit/cuda-convolutions: $(objs_convolutions)
$(O)/tests/unit/cuda-attention-library: $(fake_dnn) $(call of_library,cuda_attention_pick cuda_check cuda_choices cuda_fastest $(dnn))
product_floors := common model plan program cost device
$(PRODUCT_BINS): $(call of_library,cuda_workspace cuda_workspace_attention)
$(PRODUCT_BINS): $(O)/tests/unit/%: $(O)/tests/products/%.o $(call archives,$(product_floors))
	$(call link,$(call on_floors,$(product_floors)))

# tests/mpi/*.c run under mpirun (tests/mpi/run.sh).
MPI_SRCS := $(sort $(filter-out tests/mpi/gpu-%,$(wildcard tests/mpi/*.c)))
MPI_BINS := $(patsubst tests/%.c,$(O)/tests/%,$(MPI_SRCS))
mpi_floors := $(uses_weft-run)
$(MPI_BINS:=.o): CFLAGS += $(MPI_CFLAGS) -fopenmp
$(MPI_BINS): %: %.o $(call archives,$(mpi_floors))
	$(call link,$(call on_floors,$(mpi_floors)))

# tests/mpi/gpu-*.c run lib/cuda and lib/nccl on fakes of the CUDA runtime, of NCCL and of the kernels
# (tests/fake), which are linked before the floors and so stand in for parts of them.
FAKE_SRCS := $(if $(HAVE_NCCL),$(sort $(wildcard tests/mpi/gpu-*.c)))
FAKE_BINS := $(patsubst tests/%.c,$(O)/tests/%,$(FAKE_SRCS))
fake_floors := $(uses_weft-run)
fake_libs = $(call archives,$(fake_floors)) $(call floor_libs,$(filter-out cuda,$(fake_floors))) -ldl
FAKES     := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tests/fake/*.c)))
$(FAKES) $(FAKE_BINS:=.o): CFLAGS += $(MPI_CFLAGS) $(CUDA_CFLAGS) -fopenmp -Itests
$(FAKE_BINS): %: %.o $(FAKES) $(call archives,$(fake_floors))
	$(call link,$(fake_libs))

# Random plans (tests/mpi/plans.c) on GPUs that are not there: on the same fakes, with the kernels emulated.
EMU_PLANS := $(if $(EMULATED),$(if $(HAVE_NCCL),$(O)/tests/mpi/plans-emulated))
emu_objs  := $(O)/tests/mpi/plans.o $(O)/tests/emulate/streams.o $(EMULATOR) $(UNWATCHED)
$(O)/tests/emulate/streams.o: CFLAGS += $(CUDA_CFLAGS) -Itests
$(EMU_PLANS): $(emu_objs) $(EMULATED) $(FAKES) $(call archives,$(fake_floors))
	$(call link,$(fake_libs))

# A tool and a test as they are, on the fakes.
$(O)/tests/mpi/gpu-profile-comm: $(weft-profile-comm_objs)
objs_libraries := $(objs_products) $(if $(HAVE_CUDNN),$(fake_dnn)) \
                  $(call of_library,cuda_convolution cuda_conv_known cuda_conv_pick cuda_tune $(dnn))
$(O)/tests/fake/library.o $(O)/tests/mpi/gpu-run.o: CFLAGS += $(if $(HAVE_CUDNN),-DWEFT_FAKE_DNN)
$(O)/tests/mpi/gpu-profile-op: $(weft-profile-op_objs) $(objs_libraries)
$(O)/tests/mpi/gpu-profile-op: LDFLAGS += -Wl,--wrap=now_s
$(O)/tests/mpi/gpu-run: $(weft-run_objs) $(objs_libraries)
$(O)/tests/mpi/gpu-epilogues $(O)/tests/mpi/gpu-kernels: $(O)/tests/mpi/%: $(O)/tests/gpu/%.o $(objs_libraries)
$(O)/tests/mpi/gpu-plans: $(O)/tests/mpi/plans.o

# Tools on GPUs that are described (tests/described): all of lib/cuda as it is, with the kernels that nvcc
# compiled, on the fake of the runtime, which computes nothing.
DESCRIBED := $(if $(HAVE_CUDA),$(addprefix $(O)/tests/described/,weft-run weft-profile-op gpu-kernels gpu-attention))
described_objs := $(patsubst %.c,$(O)/%.o,$(sort $(filter-out %/cuda-described.c,$(wildcard tests/described/*.c)))) \
                  $(O)/tests/products/cublaslt.o \
                  $(filter-out %/kernels.o,$(FAKES)) $(filter-out %/cuda_library.o,$(objs_cuda))
$(O)/tests/described/%.o: CFLAGS += $(CUDA_CFLAGS) -Itests -I$(O)/tests/described
$(O)/tests/described/usages.o: $(O)/tests/described/usage.h
$(O)/tests/described/usage.h: tests/described/usage.awk $(patsubst %.cu,$(O)/%.cu.o,$(cuda_kernels))
	@mkdir -p $(@D)
	$(Q)awk -f $< $(patsubst %.cu,$(O)/%.cu.usage,$(cuda_kernels)) >$@
$(O)/tests/described/weft-run: $(weft-run_objs)
$(O)/tests/described/weft-profile-op: $(weft-profile-op_objs)
$(filter %/gpu-kernels %/gpu-attention,$(DESCRIBED)): $(O)/tests/described/%: $(O)/tests/gpu/%.o
$(DESCRIBED): $(described_objs) $(call archives,$(fake_floors))
	$(call link,$(fake_libs) -lstdc++)
# What it refuses.
DESCRIBED_BINS := $(if $(HAVE_CUDA),$(O)/tests/unit/cuda-described)
$(DESCRIBED_BINS): $(addprefix $(O)/tests/described/,cuda-described.o launch.o pointers.o) \
                   $(addprefix $(O)/tests/fake/,cudart.o memory.o) $(call archives,common)
	$(call link,$(call archives,common) -lstdc++)

# tests/gpu/*.c run on a GPU; where there is none they say so.
GPU_SRCS := $(sort $(wildcard tests/gpu/*.c))
GPU_BINS := $(patsubst tests/%.c,$(O)/tests/%,$(GPU_SRCS))
$(GPU_BINS:=.o): CFLAGS += -fopenmp
$(GPU_BINS): %: %.o $(call archives,$(unit_uses_cuda))
	$(call link,$(call on_floors,$(unit_uses_cuda)))

# tests/bench/*.c measure; they link everything.
BENCH_SRCS := $(sort $(wildcard tests/bench/*.c))
BENCH_BINS := $(patsubst tests/%.c,$(O)/tests/%,$(BENCH_SRCS))
$(BENCH_BINS:=.o): CFLAGS += $(MPI_CFLAGS) -fopenmp
$(BENCH_BINS): %: %.o $(call archives,$(FLOORS))
	$(call link,$(call on_floors,$(FLOORS)))

# tests/fuzz/*.c are libFuzzer targets: make fuzz CC=clang FUZZ_SECONDS=60
FUZZ_SRCS := $(sort $(wildcard tests/fuzz/*.c))
FUZZ_BINS := $(patsubst tests/%.c,$(O)/tests/%,$(FUZZ_SRCS))
fuzz_floors := common solve data text checkpoint model import plan program cost
$(FUZZ_BINS:=.o): CFLAGS += -fsanitize=fuzzer
$(FUZZ_BINS): %: %.o $(call archives,$(fuzz_floors))
	$(call link,-fsanitize=fuzzer $(call archives,$(fuzz_floors)) $(call floor_libs,$(fuzz_floors)))
FUZZ_SECONDS ?= 30
fuzz-run: $(FUZZ_BINS)
	@for f in $(FUZZ_BINS); do echo "  FUZZ    $$f"; mkdir -p $$f.corpus; seeds=tests/fuzz/corpus/$${f##*/fuzz-}; \
	 for seed in tests/import/*.$${f##*/fuzz-}; do [ ! -f $$seed ] || cp $$seed $$f.corpus; done; \
	 [ -d $$seeds ] || seeds=; nice $$f -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 -timeout=60 \
	   -dict=tests/fuzz/words.dict -artifact_prefix=$$f- $$f.corpus $$seeds >$$f.log 2>&1 || \
	   { tail -40 $$f.log; exit 1; }; done
# The libraries are instrumented too, else the fuzzer does not see where it gets.
fuzz:
	@DEPS=no sh scripts/deps.sh fuzz
	+$(FRESH) fuzz-run CC=clang SAN=address,undefined,fuzzer-no-link

unit: $(UNIT_BINS) $(EMU_BINS) $(WATCH_BINS) $(PRODUCT_BINS) $(DESCRIBED_BINS)
# Measurements are built with the tests, so that they go on building.
tests: $(UNIT_BINS) $(EMU_BINS) $(WATCH_BINS) $(PRODUCT_BINS) $(MPI_BINS) $(FAKE_BINS) $(EMU_PLANS) $(DESCRIBED) $(DESCRIBED_BINS) $(GPU_BINS) $(BENCH_BINS)

# ---- what people type -------------------------------------------------------------------------
# Nothing is installed but by deps, and by demo, check and plots, which begin with it unless DEPS=no.
deps: deps-check
deps-%:
	@DEPS='$(DEPS)' sh scripts/deps.sh $* $(MISSING_PACKAGES)

# All of it again in a fresh make, since what is installed decides what is built; on all cores, unless
# -j says how many.
FRESH = $(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell getconf _NPROCESSORS_ONLN))
check: deps-check
	+@$(FRESH) check-build
# The tests of the tools alone need none of the others built.
check-build: all $(or $(if $(filter-out cli/%,$(or $(T),all)),tests),$(DESCRIBED))
	@scripts/check.sh $(O) $(T)

check-asan:
	+@$(FRESH) SAN=address,undefined NVCC_ARCHS=80 check-asan-build

# Programs without MPI: its own leaks and shared memory are not ours to judge. Watched kernels are
# left out, since the watch looks at each of their accesses itself; of what nvcc compiles nothing runs
# here, so one architecture is enough.
check-asan-build: all $(UNIT_BINS) $(EMU_BINS) $(PRODUCT_BINS)
	@WEFT_LEAKS=0 scripts/check.sh $(O) unit/ cli/solve cli/predict cli/profile-op cli/search.sh

check-long: all tests
	@WEFT_LONG=1 scripts/check.sh $(O) $(T)

demo: deps-demo
	+@$(FRESH) all
	@sh scripts/demo.sh $(O)/bin

bench: bench-build
	@DEPS=no sh scripts/deps.sh demo
	@sh scripts/bench.sh $(O)
bench-build: all $(BENCH_BINS)

# On a GPU; without one each says so. Together they take at most eight minutes.
check-gpu: all $(GPU_BINS) $(O)/tests/mpi/plans
	@rm -f $(O)/check-gpu.failed
	@scripts/check-gpu.sh $(O) $(T) $(if $(filter bench-gpu,$(MAKECMDGOALS)),|| touch $(O)/check-gpu.failed)
# With both, one after the other; and what fails in the tests leaves the measurements.
bench-gpu: all $(GPU_BINS) $(filter check-gpu,$(MAKECMDGOALS))
	@$(O)/tests/gpu/gpu-device | grep -q SKIP && echo "bench-gpu: no GPU" || python3 scripts/bench-gpu.py $(O)
	@[ ! -e $(O)/check-gpu.failed ] || { rm $(O)/check-gpu.failed; echo "check-gpu has failed: see above" >&2; exit 1; }

# All that is to be measured, in parts of ten minutes at most, with a log of each.
measure-gpu: all $(GPU_BINS) $(O)/tests/mpi/plans
	@$(O)/tests/gpu/gpu-device | grep -q SKIP && echo "measure-gpu: no GPU" || scripts/measure-gpu.py $(O) build/measure-gpu $(PARTS)

# A folder that runs on another x86-64 machine with a GPU and no package manager.
pack-gpu:
	+@$(FRESH) WITH_CUDA=yes ARCH=x86-64-v3 NVCC_ARCHS="$(NVCC_ARCHS)" O=build/pack pack-gpu-build
pack-gpu-build: $(BINS) $(GPU_BINS) $(O)/tests/mpi/plans
	@scripts/pack-gpu.sh $(O) build/weft-gpu

repro-solvers: all
	@sh scripts/repro-solvers.sh "$(WEFT_DATA)" $(O)/bin

repro-search: all
	@WEFT_DATA="$(WEFT_DATA)" scripts/repro-search.sh $(O)/bin

repro-truth: $(addprefix $(O)/bin/,weft-plan weft-predict weft-profile-fit weft-profile-op)
	@scripts/repro-truth.py $(O)/bin "$(WEFT_DATA)" build/plots/truth
repro-doors: all
	@$(or $(PYTHON),python3) scripts/repro-doors.py --bin $(O)/bin
repro-faults: all
	@scripts/repro-faults.py $(O)/bin $(or $(N),20) $(or $(SEED),1)
goodput: all
	@scripts/goodput.py $(O)/bin $(or $(MINUTES),3) $(or $(SEED),1) $(or $(HOSTS),0)
predict-here: all
	@scripts/predict-vs-measure.py $(O)/bin build/predict-here $(or $(SETS),families)
repro-network: all
	@scripts/repro-network.py $(O)/bin build/repro-network
keep-cost: all
	@scripts/keep-cost.py $(O)/bin $(or $(ROUNDS),15)
repro-throughput: all
	@DEPS=no sh scripts/deps.sh demo
	@scripts/repro-throughput.sh $(O)/bin

# The page of figures: what is quick anew, the rest as doc/figures.in has it.
figures: all
	@scripts/figures.sh $(O)/bin

# Pictures; those of the documentation are committed, plots-doc draws them anew.
plots: deps-plots
	+@$(FRESH) all
	@scripts/plots.sh $(O)/bin build/plots
plots-doc: deps-plots
	+@$(FRESH) all
	@scripts/plots.sh $(O)/bin build/plots doc
	cp build/plots/timeline.svg build/plots/memory.svg build/plots/waterfall.svg build/plots/pareto.svg doc/

# The programs and memory plans of tests/golden anew.
update-golden: $(O)/bin/weft-run
	@WEFT_BIN=$(O)/bin bash tests/cli/golden.sh update

# The tables of the manual that the code knows.
update-manual: $(O)/tests/unit/program-manual $(O)/tests/unit/search-manual
	@for table in $^; do $$table update || exit; done

lint:
	@scripts/lint.sh $(CC)

MAN1 := $(wildcard man/*.1)
MAN5 := $(wildcard man/*.5)
MAN7 := $(wildcard man/*.7)
# Either may hold blanks, so all that is made of them is quoted.
TO          = $(DESTDIR)$(PREFIX)
COMPLETIONS = $(TO)/share/bash-completion/completions
install: $(BINS)
	install -d "$(TO)/bin" "$(TO)/share/weft/models" "$(TO)/share/weft/clusters" \
	  "$(TO)/share/weft/devices" "$(TO)/share/weft/runtimes" "$(TO)/share/weft/schemas" "$(TO)/share/man/man1" "$(TO)/share/man/man5" \
	  "$(TO)/share/man/man7" "$(COMPLETIONS)"
	install -m 755 $(BINS) "$(TO)/bin"
	install -m 644 share/models/*.json "$(TO)/share/weft/models"
	install -m 644 $(wildcard share/clusters/*.json) "$(TO)/share/weft/clusters"
	install -m 644 $(wildcard share/devices/*.json) "$(TO)/share/weft/devices"
	install -m 644 $(wildcard share/runtimes/*.json) "$(TO)/share/weft/runtimes"
	install -m 644 $(wildcard share/schemas/*.json) "$(TO)/share/weft/schemas"
	install -m 644 $(MAN1) "$(TO)/share/man/man1"
	install -m 644 $(MAN5) "$(TO)/share/man/man5"
	install -m 644 $(MAN7) "$(TO)/share/man/man7"
	for t in $(TOOLS); do install -m 644 share/completions/weft.bash "$(COMPLETIONS)/$$t"; done

uninstall:
	rm -f $(patsubst %,"$(TO)/bin/%",$(TOOLS)) $(patsubst %,"$(COMPLETIONS)/%",$(TOOLS))
	rm -f $(patsubst man/%,"$(TO)/share/man/man1/%",$(MAN1)) \
	  $(patsubst man/%,"$(TO)/share/man/man5/%",$(MAN5)) \
	  $(patsubst man/%,"$(TO)/share/man/man7/%",$(MAN7))
	rm -rf "$(TO)/share/weft"

config:
	@echo "compiler        $(CC), objects in $(O)"
	@echo "matrix product  $(GEMM)"
	@echo "MPI             $(if $(HAVE_MPI),$(shell $(MPICC) --showme:version 2>/dev/null))"
	@echo "CUDA            $(if $(HAVE_CUDA),$(shell $(NVCC) --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')$(comma) $(NVCC),no$(if $(CUDA_LACKS),: not found: $(CUDA_LACKS)))"
	$(if $(HAVE_CUDA),@echo "cuDNN           $(or $(HAVE_CUDNN),no: not found: $(CUDNN_LACKS); weft's own kernels convolve)")
	$(if $(HAVE_CUDA),@echo "NCCL            $(or $(HAVE_NCCL),no: not found: $(NCCL_LACKS); by way of the hosts)")
	@echo "missing         $(or $(MISSING),nothing)"

help:
	@echo "Build"
	@echo "  make                 the tools, into bin/; says what is missing"
	@echo "  make demo            install what is missing, measure, search a plan, train a GPT under it"
	@echo "  make deps            only install what is missing (Debian packages)"
	@echo "  make config          what was found on this machine"
	@echo "  make install uninstall   PREFIX=/usr/local DESTDIR="
	@echo "  make clean           remove build/ and bin"
	@echo "Test"
	@echo "  make check           install what is missing, build, run the tests (T=name: some)"
	@echo "  make tests           build the tests"
	@echo "  make check-asan      the tests without MPI, under AddressSanitizer and UBSan"
	@echo "  make check-long      the long form of the tests"
	@echo "  make check-gpu       the tests that need a GPU (T=part: some)"
	@echo "  make fuzz            fuzz every parser with clang (FUZZ_SECONDS=30)"
	@echo "  make lint            formatting, floors, uncalled functions, examples in headers, man pages, ..."
	@echo "  make update-golden   compile the plans of tests/golden anew; read the difference"
	@echo "  make update-manual   the manual's tables (kinds, schedules, algorithms) from the code"
	@echo "Measure"
	@echo "  make bench           kernels, collectives, training speed"
	@echo "  make bench-gpu       training on a GPU beside PyTorch; kernels; predictions"
	@echo "  make measure-gpu     all figures of a GPU, with a log of each part (PARTS=\"families start\": some)"
	@echo "  make pack-gpu        build/weft-gpu: both on a machine that has nothing installed"
	@echo "  make figures         doc/figures.md: what is quick to measure, anew"
	@echo "  make repro-search    tables about searches (TABLES=\"gradient\": some)"
	@echo "  make repro-solvers   published instances of the solvers (WEFT_DATA=DIR)"
	@echo "  make repro-truth        predictions without hardware beside published steps (WEFT_DATA), and pictures"
	@echo "  make repro-doors        models through each door beside PyTorch's (PYTHON=one that has torch; half an hour)"
	@echo "  make repro-faults       kills at random instants under weft-keep (N=20 of them, SEED=1)"
	@echo "  make goodput            goodput while ranks die, beside its prediction (MINUTES=3, SEED=1, HOSTS=0)"
	@echo "  make predict-here       predicted and measured steps of this machine (SETS=families gpt demo; 20 minutes)"
	@echo "  make repro-network      where a slow network makes a pipeline the better plan (root)"
	@echo "  make keep-cost          what the supervisor and checkpoints in memory cost a step (ROUNDS=15)"
	@echo "  make repro-throughput   real runs of found plans beside grid and dp-only (RANKS, ROWS)"
	@echo "  make plots           draw predictions and measurements into build/plots (installs gnuplot)"
	@echo "  make plots-doc       the pictures of the documentation anew; they are not measured"
	@echo "With any of them"
	@echo "  DEPS=no              install nothing"
	@echo "  CC=clang DEV=1 V=1   another compiler; warnings are errors; show commands"
	@echo "  SAN=address,undefined   sanitizers"
	@echo "  WITH_CUDA=no|yes     without GPUs; fail where they cannot be had (CUDA_HOME=DIR: the toolkit)"

-include $(shell find $(O) -name '*.d' 2>/dev/null)

clean:
	rm -rf build bin

.PHONY: all unit tests deps check check-build check-asan check-asan-build check-gpu check-long demo bench bench-build \
        repro-search repro-solvers repro-throughput repro-truth repro-doors repro-faults goodput keep-cost predict-here repro-network figures bench-gpu measure-gpu pack-gpu pack-gpu-build plots plots-doc update-golden update-manual lint \
        install uninstall config help fuzz fuzz-run clean FORCE
