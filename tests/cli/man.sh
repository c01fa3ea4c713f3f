#!/usr/bin/env bash
# The manual against the programs: mandoc finds nothing to complain about, every option that
# `-h` lists stands in the page and the reverse, and the examples run.
#
# Examples that run are the lines of a page that begin with "$ ": a shell command, which goes
# on in the next line after a backslash or a pipe, inside quotes, and up to the end of a
# here-document.
# The commands of a page run in turn in one temporary folder and must end with status 0; what
# stands below a command shows its output and is not compared.
#
# Prints TAP; the programs are in $WEFT_BIN, the sources in $WEFT_ROOT.
set -u
cd "${WEFT_ROOT:?}" || exit 1
bin=${WEFT_BIN:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
# MPI keeps memory of its own to the end.
case "$bin" in *address*) export ASAN_OPTIONS=detect_leaks=0 ;; esac
n=0 failed=0

ok() { # ok STATUS TEXT [FILE]: FILE is shown when it failed
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        [ $# -lt 3 ] || sed 's/^/# /' "$3" | head -20
        failed=$((failed + 1))
    fi
}
skip() { # skip TEXT REASON
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}

if ! command -v mandoc >/dev/null; then
    skip 'the manual' 'mandoc is not installed'
    echo "1..$n"
    exit 0
fi

# ---- mandoc ---------------------------------------------------------------------------------
# It looks for other pages where the system has its own: ours are looked for here.
for page in man/*; do
    mandoc -T lint "$page" 2>&1 | grep -Ev 'outdated mandoc.db|referenced manual not found' \
        >"$work/lint"
    grep -E '^\.Xr weft' "$page" | sort -u | while read -r _ name section _; do
        [ -f "man/$name.$section" ] || echo "no page $name($section)"
    done >>"$work/lint"
    [ ! -s "$work/lint" ]
    ok $? "${page#man/}: mandoc -T lint" "$work/lint"
done

# A page as text without line breaks inside paragraphs and without emphasis.
text() {
    mandoc -T ascii -O width=1000 "$1" | sed 's/.\x08//g'
}

# ---- options --------------------------------------------------------------------------------
# Tags of a list: "-d, --data SOURCE", "--beta1 X, --beta2 X".
page_options() {
    text "$1" | sed '/^EXAMPLES/,/^[A-DF-Z]/d' | grep -E '^ +-' | grep -oE '(^ +|, )--?[a-z][a-z0-9-]*' | sed 's/^[ ,]*//' | sort -u
}
help_options() {
    "$1" -h 2>/dev/null | grep -E '^ +-' | grep -oE '^ +(-[a-z], +)?--[a-z0-9-]+' |
        grep -oE -- '--?[a-z][a-z0-9-]*' | sort -u
}
for source in tools/*/weft-*.c; do
    tool=$(basename "$source" .c)
    if [ ! -x "$bin/$tool" ]; then
        skip "$tool: options" 'not built'
        continue
    fi
    [ -f "man/$tool.1" ]
    ok $? "$tool: has a page"
    [ -f "man/$tool.1" ] || continue
    help_options "$bin/$tool" >"$work/help"
    page_options "man/$tool.1" >"$work/page"
    diff "$work/help" "$work/page" >"$work/diff" && [ -s "$work/help" ]
    ok $? "$tool: -h and the page list the same options" "$work/diff"
done

# ---- examples ---------------------------------------------------------------------------------
# Writes every command of a page to a file of its own: 001.sh, 002.sh, ...
split_examples() { # split_examples PAGE FOLDER
    mkdir -p "$2"
    text "$1" | perl -e '
        my ($folder) = @ARGV;
        my ($count, $command, $indent, $end) = (0, "", 0, "");
        sub open_quote {
            my ($t) = @_;
            my $q = "";
            for my $c (split //, $t) {
                if ($q) { $q = "" if $c eq $q }
                elsif ($c eq q(") or $c eq chr 39) { $q = $c }
            }
            return $q ne "";
        }
        while (my $line = <STDIN>) {
            if ($command eq "") {
                next unless $line =~ /^( +)\$ (.*)/;
                $indent = length($1);
                $command = "$2\n";
            } else {
                $line =~ s/^ {0,$indent}//;
                $command .= $line;
            }
            $end = $1 if $end eq "" and $command =~ /<<\x27?(\w+)/;
            if ($end ne "") { next unless $command =~ /^\Q$end\E$/m and $command =~ /\n\Q$end\E\n/ }
            elsif ($command =~ /[\\|]\n\z/ or open_quote($command)) { next }
            open(my $f, ">", sprintf("%s/%03d.sh", $folder, ++$count)) or die;
            print $f $command;
            close $f;
            ($command, $end) = ("", "");
        }
        die "unfinished: $command" if $command ne "";
    ' "$2"
}

# A word for a tool of ours that a command needs and that is not built, or for one of others
# that is not installed.
missing_of() {
    local word
    grep -ohE '\bweft-[a-z]+(-(op|comm))?\b' "$1"/*.sh | sort -u | while read -r word; do
        [ -n "$(find tools -name "$word.c")" ] && [ ! -x "$bin/$word" ] && echo "$word"
    done
    for word in jq sqlite3 mpirun; do
        grep -qw "$word" "$1"/*.sh && ! command -v "$word" >/dev/null && echo "$word"
    done
}

for page in man/*; do
    name=${page#man/}
    text "$page" | grep -qE '^ +\$ ' || continue
    folder=$work/$name
    split_examples "$page" "$folder/commands"
    ok $? "$name: its examples can be read"
    missing=$(missing_of "$folder/commands" | tr '\n' ' ')
    if [ -n "$missing" ]; then
        skip "$name: examples" "not there: $missing"
        continue
    fi
    mkdir "$folder/run"
    for command in "$folder"/commands/*.sh; do
        (cd "$folder/run" && PATH="$bin:$PATH" timeout 120 bash -o pipefail "$command") \
            >"$work/out" 2>&1 </dev/null
        ok $? "$name: $(head -1 "$command")" "$work/out"
    done
done

echo "1..$n"
[ "$failed" -eq 0 ]
