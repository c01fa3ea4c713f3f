#!/usr/bin/env bash
# Cycles among the files of one floor: files that call functions of each other, directly or through
# others. A line for each group of files that all reach each other, with what they call.
#   scripts/cycles.sh [BUILD [FLOOR...]]     build/gcc, and all floors that are built there
# Read from the symbols of the objects: what a file defines, and what it leaves to others. Tables of
# functions are data, so a file may stand in a table that another file of its floor walks.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/gcc}
shift || true

calls() { # calls OBJECT...: a line "FILE CALLED_FILE FUNCTION" for each call among these
    nm -A "$@" | awk '
        { sub(/:.*/, "", $1) }
        $(NF - 1) == "T" { defined[$NF] = $1 }
        $(NF - 1) == "U" { needs[++n] = $1; name[n] = $NF }
        END {
            for (i = 1; i <= n; i++)
                if (name[i] in defined) print needs[i], defined[name[i]], name[i]
        }'
}

cycles() { # cycles: of the calls on stdin
    awk '
        { to[$1] = to[$1] " " $2; label[$1, $2] = label[$1, $2] " " $3; file[$1]; file[$2] }
        function reach(at, from, n, i, next_) {
            n = split(to[at], next_, " ")
            for (i = 1; i <= n; i++)
                if (!((from, next_[i]) in reached)) {
                    reached[from, next_[i]] = 1
                    reach(next_[i], from)
                }
        }
        function short(path) { sub(/.*\//, "", path); sub(/\.o$/, ".c", path); return path }
        END {
            for (a in file) reach(a, a)
            for (a in file) {
                if (!((a, a) in reached) || a in done) continue
                n = 0
                line = ""
                for (b in file)
                    if ((a, b) in reached && (b, a) in reached) {
                        done[b] = 1
                        n++
                        for (c in file)
                            if ((a, c) in reached && (c, a) in reached && (b, c) in label)
                                line = line sprintf("; %s calls%s of %s", short(b), label[b, c], short(c))
                    }
                print "a cycle of " n " files: " substr(line, 3)
            }
        }'
}

if [ $# -eq 0 ]; then
    mapfile -t floors < <(find "$build/lib" -mindepth 1 -maxdepth 1 -type d -printf "%f\n" | sort)
    set -- "${floors[@]}"
fi
for floor; do
    mapfile -t objects < <(find "$build/lib/$floor" -name '*.o')
    [ ${#objects[@]} -eq 0 ] || calls "${objects[@]}" | cycles | sed "s|^|lib/$floor: |"
done
