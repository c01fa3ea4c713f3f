# examples.bash - the commands that documentation shows, to be run: source it, with the programs in
# $WEFT_BIN.
#
# A command is a line that begins with blanks and "$ "; it goes on in the next line after a
# backslash or a pipe, inside quotes, and up to the end of a here-document. Lines below it, as far
# as they are indented, show its output; "..." stands for any number of lines. A line
# <!-- not run by the tests: REASON --> holds for the commands from there to the next text, and so does
# <!-- computed -->, of output that rests on no measurement: its numbers are compared, to three digits.
# shellcheck shell=bash
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
# MPI keeps memory of its own to the end.
case "${WEFT_BIN:?}" in *address*) export ASAN_OPTIONS=detect_leaks=0 ;; esac

# Of the text on stdin, writes every command to a file of its own: 001.sh, 002.sh, ...; beside it
# 001.shown with the output that is shown, if any, 001.not with the reason not to run it, 001.computed
# where its numbers count.
split_examples() { # split_examples FOLDER
    mkdir -p "$1"
    perl -e '
        my ($folder) = @ARGV;
        my ($count, $command, $indent, $end, $shown, $not, $computed) = (0, "", 0, "", 0, "", "");
        sub open_quote {
            my ($t) = @_;
            my $q = "";
            for my $c (split //, $t) {
                if ($q) { $q = "" if $c eq $q }
                elsif ($c eq q(") or $c eq chr 39) { $q = $c }
            }
            return $q ne "";
        }
        sub append {
            my ($ending, $text) = @_;
            open(my $f, ">>", sprintf("%s/%03d.%s", $folder, $count, $ending)) or die;
            print $f $text;
            close $f;
        }
        while (my $line = <STDIN>) {
            if ($command eq "") {
                if ($line =~ /^\S/) {
                    $not = $line =~ /^<!-- not run by the tests: (.*) -->/ ? $1 : "";
                    $computed = $line =~ /^<!-- computed -->/;
                }
                if ($line !~ /^( +)\$ (.*)/) {
                    $shown &&= $line =~ /^ {$indent}/;
                    append("shown", substr($line, $indent)) if $shown;
                    next;
                }
                $indent = length($1);
                $command = "$2\n";
            } else {
                $line =~ s/^ {0,$indent}//;
                $command .= $line;
            }
            $end = $1 if $end eq "" and $command =~ /<<\x27?(\w+)/;
            if ($end ne "") { next unless $command =~ /\n\Q$end\E\n/ }
            elsif ($command =~ /[\\|]\n\z/ or open_quote($command)) { next }
            $count++;
            append("sh", $command);
            append("not", "$not\n") if $not ne "";
            append("computed", "") if $computed;
            ($command, $end, $shown) = ("", "", 1);
        }
        die "unfinished: $command" if $command ne "";
    ' "$1"
}

run_example() { # run_example FILE: in this folder, as a reader would
    PATH="$WEFT_BIN:$PATH" timeout 900 bash -o pipefail "$1" </dev/null
}

# Whether output has the shape of what is shown: line by line the same but for numbers, bars and the
# width of blanks. Where there is a file COMPUTED, numbers are compared too: each must be the one that
# is shown, rounded to as many digits as are shown, but to three at most. So nobody has to write down,
# and no compiler or library has to repeat, the sixteen digits of a float.
same_shape() { # same_shape SHOWN OUTPUT COMPUTED
    perl -e '
        use re "eval";
        my $computed = -e $ARGV[2];
        my $number = qr/\d+(?:\.\d+)?(?:e[-+]?\d+)?/i;
        sub lines {
            open(my $f, "<", $_[0]) or die;
            return map {
                s/[-+]?\d[\d.,]*(e[-+]?\d+)?/0/gi, s/#+/#/g unless $computed;
                s/\s+/ /g;
                s/ $//;
                $_
            } <$f>;
        }
        sub agree { # whether a number is the one that is shown
            my ($shown, $got) = @_;
            my ($digits) = $shown =~ /^([\d.]+)/;
            $digits =~ s/^[0.]+|\.//g;
            return $got == 0 if $digits eq "";
            my $most = length $digits < 3 ? length $digits : 3;
            my $last = sprintf("%.9e", $shown) =~ /e(.*)/ ? 10 ** ($1 - $most + 1) : 1;
            return abs($got - $shown) <= 0.5000001 * $last;
        }
        # Of a line, the pattern that matches it; numbers are compared as they are found.
        sub pattern {
            my ($line) = @_;
            return "(?:.*\\n)*" if $line eq "...";
            return quotemeta($line) . " *\\n" unless $computed;
            return join("", map {
                /^$number$/ ? "((?>$number))(?(?{ agree(q($_), \$^N) })|(*FAIL))" : quotemeta($_)
            } split /($number)/, $line) . " *\\n";
        }
        my $want = join "", map { pattern($_) } lines($ARGV[0]);
        my $got = join "", map { "$_\n" } lines($ARGV[1]);
        exit($got =~ /\A$want\z/ ? 0 : 1);
    ' "$1" "$2" "$3"
}
