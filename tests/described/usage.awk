# What ptxas -v says of kernels, as lines of a table in C (launch.c): architecture, name, registers,
# bytes of shared memory.
/Compiling entry function/ {
    split($0, quoted, "'")
    name = quoted[2]; arch = quoted[4]; sub(/^sm_/, "", arch)
}
/Used [0-9]+ registers/ {
    shared = 0
    for (i = 2; i <= NF; i++) {
        if ($i == "registers,") registers = $(i - 1)
        if ($i ~ /^smem/) shared = $(i - 2)
    }
    printf "{\"%s\", \"%s\", %d, %d},\n", arch, name, registers, shared
}
