#!/usr/bin/env bash
# For a machine with an NVIDIA GPU that is available for a short time: measures this program there, in parts that each have a time of their own.
#
#   benches/gpu/pack.sh                          where there is Rust: makes .lease/plimsoll.xz and .lease/on_card.xz
#   benches/gpu/lease.sh [PART…]                 where there is a card, with the folders benches/gpu and .lease
#
# | part     | seconds | what                                                                                          |
# |----------|--------:|-----------------------------------------------------------------------------------------------|
# | card     |      90 | nvidia-smi -q, doctor, lanes of fragments, the fastest copy and matrix product of PyTorch     |
# | cases    |     300 | every kernel against its definition, in f32, bf16, f16 and tf32                               |
# | steps    |     180 | steps in bf16, f16 and tf32 with the memory that nvidia-smi sees, a profile, and one in f32   |
# | counters |     300 | ncu on one step whose launches are not recorded, and on the cases of exact distances          |
# | torch    |     480 | the same steps in PyTorch: channels last and contiguous, eager and compiled                   |
# | runs     |     300 | trainings in bf16 and f16, twice and with a kill; predictions; tiles; compute-sanitizer       |
#
# All parts run by default, in this order. Where one command may take ten minutes, call `card cases steps`, then `counters runs`, then `torch`, each right after the
# last. Programs are unpacked once, to LEASE_FOLDER (plimsoll-lease in the folder for temporary files), which keeps the kernels that the driver has compiled too.
#
# Nothing but the two programs is needed there: no Rust, no CUDA toolkit. PLIMSOLL and CARD_TEST name others, compressed or not; without the folder .lease,
# PLIMSOLL is target/release/plimsoll. If python3 has torch (and monai, for the same network), or ncu or compute-sanitizer is installed, they are used.
#
# OUT (default gpu-report) gets PART.json for each part, report.txt, and PART-logs.tgz with all output. Values for which there was no time, or which did not end in time,
# are null, and count as no failure unless a test or a program failed before; `failed` names what went wrong. A part that fails does not end the others. The status
# is 3 if there is no card, 1 if something failed, else 0. DEVICE is the card (cuda:0).
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
packed=$here/../../.lease
plimsoll=${PLIMSOLL:-}
card_test=${CARD_TEST:-}
if [[ -z $plimsoll$card_test && -d $packed ]]; then
    plimsoll=$packed/plimsoll.xz
    card_test=$packed/on_card.xz
fi
plimsoll=${plimsoll:-$here/../../target/release/plimsoll}
device=${DEVICE:-cuda:0}
out=${OUT:-gpu-report}
failed=()
parts=("$@")
((${#parts[@]})) || parts=(card cases steps counters torch runs)
for part in "${parts[@]}"; do
    case $part in
    card | cases | steps | counters | torch | runs) ;;
    *) echo "lease.sh: there is no part $part: the head of this file lists them" >&2; exit 2 ;;
    esac
done

mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
lease=${LEASE_FOLDER:-${TMPDIR:-/tmp}/plimsoll-lease}
mkdir -p "$lease" || exit 2
work=
# Keeps the output of all commands of a part, whenever it ends.
keep_logs() {
    [[ -n $work ]] || return
    (cd "$work" && find . -maxdepth 1 -type f \( -name '*.txt' -o -name '*.err' -o -name '*.csv' \) -print0 | tar -czf "$out/$part-logs.tgz" --null -T -)
    rm -rf "$work"
    work=
}
trap keep_logs EXIT
# Unpacks a program that is compressed, and prints where it is then. Python can do that, too, where there is no xz.
# usage: unpacked FILE
unpacked() {
    local to
    to=$lease/$(basename "$1" .xz)
    [[ -x $to && ! $1 -nt $to ]] && { printf '%s' "$to"; return; }
    if command -v xz >/dev/null; then
        xz -dc "$1" >"$to" || return
    else
        python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)' "$1" >"$to" || return
    fi
    chmod +x "$to" && printf '%s' "$to"
}
for name in plimsoll card_test; do
    [[ ${!name} == *.xz && -f ${!name} ]] || continue
    program=$(unpacked "${!name}") || { echo "lease.sh: ${!name} cannot be unpacked: pack.sh makes it anew" >&2; exit 2; }
    printf -v "$name" '%s' "$program"
done
if [[ ! -x $plimsoll ]]; then
    echo "lease.sh: no program at $plimsoll: pack.sh makes one, or PLIMSOLL names it" >&2
    exit 2
fi
# Rates and inspections of other commands are not part of this report.
export XDG_CACHE_HOME=$lease/cache
# The driver compiles the kernels once for all commands. The folder is empty at first, so that its time is measured.
export CUDA_CACHE_PATH=$lease/jit CUDA_CACHE_MAXSIZE=1073741824
# The card of the tests, by its number.
number=${device#cuda}
number=${number#:}
export PLIMSOLL_TEST_DEVICE=${number:-0}
json=
first=1

say() { printf '%s\n' "$*" | tee -a "$out/report.txt"; }

# Begins a part, which ends after some seconds, so that none takes the time of the next.
# usage: begin SECONDS
begin() {
    began=$SECONDS
    until=$((SECONDS + $1))
    work=$(mktemp -d) || exit 2
    json=$out/$part.json
    first=1
    failed=()
    printf '{\n' >"$json"
    say "---- $part"
}

# Ends a part. The status is not 0 if something has failed.
end() {
    local keys
    keys=$(IFS=,; printf '%s' "${failed[*]-}")
    ((first)) || printf ',\n' >>"$json"
    printf '"failed": [%s], "seconds": %d\n}\n' "$keys" $((SECONDS - began)) >>"$json"
    say "$part: ${#failed[@]} failure(s), $((SECONDS - began)) s; $json"
    keep_logs
    ((${#failed[@]} == 0))
}

# The seconds that are left of the part, at most some.
seconds_of() {
    local left=$((until - SECONDS))
    ((left > $1)) && left=$1
    ((left > 0)) && printf '%s' "$left" || printf '0'
}

# Runs a command within some seconds of what is left of the part; the status is 124 if nothing is left, or if it does not end in time.
# usage: within SECONDS COMMAND…
within() {
    local seconds
    seconds=$(seconds_of "$1")
    shift
    ((seconds > 0)) || return 124
    timeout -k 10 "$seconds" "$@"
}

# Says and notes that something went wrong.
# usage: fail KEY WHAT
fail() {
    failed+=("\"$1\"")
    say "$1: FAILED, $2"
}

# Whether tests say in their output that they ran on a card. With one thread, the name of a test stands in front of its first line.
# usage: on_a_card FILE
on_a_card() { grep -qE '^(test .* \.\.\. )?on .' "$1" && ! grep -q 'skipped:' "$1"; }

# Why nothing was tested that was to be, from the output of the tests.
untested() {
    local skipped
    skipped=$(grep -m 1 -o 'skipped:.*' "$1")
    printf 'nothing was tested on a card: %s' "${skipped:-CARD_TEST is to name the on_card test of conformance}"
}

# Whether tests or a program have failed, by their output: also where the time was up before their end.
# usage: has_failed FILE
has_failed() { grep -qE 'panicked at|\.\.\. FAILED$' "$1"; }

# Where they have failed, with what was said there, into the report; the first of these is printed, or where there is none the last lines.
# usage: panic_of FILE
panic_of() {
    local first
    grep -A 2 'panicked at' "$1" | head -n 24 >>"$out/report.txt"
    first=$(grep -m 1 -A 1 -E 'panicked at|\.\.\. FAILED$' "$1")
    printf '%s' "${first:-$(tail -n 2 "$1")}" | tr '\n' ' '
}

# Adds a key with the JSON of a file, or with null where the file is empty or was not written.
add() {
    ((first)) || printf ',\n' >>"$json"
    first=0
    printf '"%s": ' "$1" >>"$json"
    if [[ -s $2 ]]; then cat "$2" >>"$json"; else printf 'null' >>"$json"; fi
}

# Runs a command within so many seconds, its JSON into a file, which stays empty where it does not end well. A failure is said, with its
# last lines, and noted. The status is that of the command, and 124 where it was left out or cut off.
# usage: measure KEY SECONDS COMMAND…
measure() {
    local key=$1 status
    within "$2" "${@:3}" >"$work/$key.json" 2>"$work/$key.err"
    status=$?
    if ((status == 124)) && ! has_failed "$work/$key.err"; then
        say "$key: left out, there was not time enough"
    elif ((status != 0)); then
        fail "$key" "status $status: $(panic_of "$work/$key.err")"
    fi
    ((status == 0)) || : >"$work/$key.json"
    return "$status"
}

# The value of a key of pretty-printed JSON, the first one.
value() { sed -n "s/^ *\"$2\": *\"\{0,1\}\(.*[^\",]\)\"\{0,1\},\{0,1\}\$/\1/p" "$1" | head -n 1; }

mebibytes() { [[ $1 =~ ^[0-9]+$ ]] && printf '%s MiB' $(($1 >> 20)) || printf '–'; }

# Whether python3 has a PyTorch that finds a card.
has_torch() { within 30 python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; }

# Compares the lanes of the card that have the elements of fragments, a kernel of tensor cores after the other.
fragments() {
    local status
    : >"$work/fragments.json"
    if [[ -x $card_test ]]; then
        within 30 "$card_test" fragments --nocapture >"$work/fragments.txt" 2>&1
        status=$?
        if ((status == 124)) && ! has_failed "$work/fragments.txt"; then
            say "fragments: left out, there was not time enough"
        else
            # The one that is not named behind those that are is the one that has failed.
            awk -v status="$status" 'BEGIN {printf "{\"status\": %d, \"agree\": [", status}
                /^fragments of .*: they agree$/ {
                    sub(/^fragments of /, ""); sub(/: they agree$/, ""); printf "%s\"%s\"", (n++ ? ", " : ""), $0
                } END {printf "]}"}' "$work/fragments.txt" >"$work/fragments.json"
            if ((status != 0)); then
                fail fragments "status $status: $(panic_of "$work/fragments.txt")"
            elif ! on_a_card "$work/fragments.txt" || ! grep -q '^fragments of .*: they agree$' "$work/fragments.txt"; then
                fail fragments "$(untested "$work/fragments.txt")"
            else
                say "fragments: $(grep -c 'they agree$' "$work/fragments.txt") kinds lie as the kernels take them"
            fi
        fi
    fi
    add fragments "$work/fragments.json"
}

part_card() {
    begin 90
    command -v nvidia-smi >/dev/null && within 20 nvidia-smi -q >"$work/nvidia-smi.txt" 2>&1
    local start=$SECONDS doctor
    measure doctor 80 "$plimsoll" doctor --json
    doctor=$?
    printf '%d' $((SECONDS - start)) >"$work/doctor_seconds.json"
    add doctor "$work/doctor.json"
    add doctor_seconds "$work/doctor_seconds.json"
    if grep -q '"gpu": null' "$work/doctor.json"; then
        say "no card: $(value "$work/doctor.json" no_gpu)"
        end
        exit 3
    fi
    start=$SECONDS
    within 15 "$plimsoll" doctor 2>&1 | tee -a "$out/report.txt"
    printf '%d' $((SECONDS - start)) >"$work/doctor_again_seconds.json"
    add doctor_again_seconds "$work/doctor_again_seconds.json"
    say "doctor: $(<"$work/doctor_seconds.json") s with the kernels to compile, $(<"$work/doctor_again_seconds.json") s again"
    fragments
    : >"$work/ceilings.json"
    has_torch && measure ceilings 30 python3 "$here/step.py" --ceilings
    add ceilings "$work/ceilings.json"
    end
}

part_cases() {
    begin 300
    local start status took agreeing
    : >"$work/conformance.json"
    if [[ -x $card_test ]]; then
        start=$SECONDS
        within 300 "$card_test" --skip fragments --skip tiles_are_timed --nocapture >"$work/conformance.txt" 2>&1
        status=$?
        took=$((SECONDS - start))
        tail -n 25 "$work/conformance.txt" >>"$out/report.txt"
        if ((status == 124)) && ! has_failed "$work/conformance.txt"; then
            say "conformance: left out, there was not time enough ($took s)"
        else
            agreeing=$(sed -nE 's/^(test .* \.\.\. )?([0-9]+) cases in .*: they agree$/\2/p' "$work/conformance.txt" | awk '{n += $1} END {print n + 0}')
            printf '{"status": %d, "seconds": %d, "cases": %d}' "$status" "$took" "$agreeing" >"$work/conformance.json"
            if ((status != 0)); then
                fail conformance "status $status: $(panic_of "$work/conformance.txt")"
            elif ! on_a_card "$work/conformance.txt" || ((agreeing == 0)); then
                fail conformance "$(untested "$work/conformance.txt")"
            else
                say "conformance: all $agreeing cases agree, $took s"
            fi
        fi
    else
        say "conformance: left out, CARD_TEST names no test binary"
    fi
    add conformance "$work/conformance.json"
    end
}

# What all processes hold of the card, by nvidia-smi, sampled while a command runs: the most, in bytes.
# usage: sampled FILE COMMAND…
sampled() {
    local to=$1 sampler
    shift
    command -v nvidia-smi >/dev/null || { "$@"; return; }
    nvidia-smi --query-compute-apps=used_memory --format=csv,noheader,nounits -lms 100 >"$to" 2>/dev/null &
    sampler=$!
    "$@"
    local status=$?
    kill "$sampler" 2>/dev/null
    wait "$sampler" 2>/dev/null
    return "$status"
}

# A step of a DynUNet: its time, and its memory as planned, as counted by the program, and as nvidia-smi sees it.
# usage: step SIZE BATCH PRECISION STEPS
step() {
    local key=step-$1-$2-$3 seen
    sampled "$work/$key-memory.txt" measure "$key" 60 "$plimsoll" bench step --json --device "$device" --net dynunet --size "$1" --batch "$2" \
        --precision "$3" --steps "$4" || return
    [[ -s $work/$key.json ]] || return
    seen=$(awk '$1 + 0 > most {most = $1} END {printf "%d", most * 1048576}' "$work/$key-memory.txt" 2>/dev/null)
    printf '%s{"seen_bytes": %s, "step": ' "$comma" "${seen:-null}" >>"$work/steps.json"
    cat "$work/$key.json" >>"$work/steps.json"
    printf '}' >>"$work/steps.json"
    comma=','
    say "step dynunet $1³ × $2 $3: $(value "$work/$key.json" seconds_per_step) s" \
        "($(value "$work/$key.json" predicted_seconds) predicted)," \
        "$(mebibytes "$(value "$work/$key.json" vram_planned_bytes)") planned," \
        "$(mebibytes "$(value "$work/$key.json" vram_used_bytes)") used, $(mebibytes "${seen:-}") seen"
}

part_steps() {
    begin 180
    local precision
    printf '[' >"$work/steps.json"
    comma=''
    for precision in bf16 f16 tf32; do
        step 96 1 "$precision" 7
        step 96 2 "$precision" 7
        step 128 2 "$precision" 7
    done
    measure profile 30 "$plimsoll" bench step --json --device "$device" --size 128 --batch 2 --precision bf16 --steps 3 --profile
    # Its nodes are lines of a name and its milliseconds, beside the JSON.
    : >"$work/nodes.json"
    if [[ -s $work/profile.json ]]; then
        grep ' ms$' "$work/profile.err" | awk '{print $(NF-1) "\t" $0}' | sort -rn | cut -f 2- >"$work/nodes.txt"
        { echo 'nodes of dynunet 128³ × 2 bf16, the slowest:'; head -n 20 "$work/nodes.txt"; } >>"$out/report.txt"
        awk 'BEGIN {printf "["} {
            ms = $(NF-1); sub(/ +[0-9.]+ ms$/, ""); gsub(/[\\"]/, "\\\\&")
            printf "%s{\"node\": \"%s\", \"milliseconds\": %s}", (NR > 1 ? ",\n" : ""), $0, ms
        } END {printf "]"}' "$work/nodes.txt" >"$work/nodes.json"
    fi
    # The slowest is last, and its one step is enough.
    step 96 1 f32 1
    step 128 2 f32 1
    printf ']' >>"$work/steps.json"
    add steps "$work/steps.json"
    add profile "$work/profile.json"
    add profile_nodes "$work/nodes.json"
    end
}

# Counters of all kernels of a command, as a table beside the logs. The first runs of a program are launched one by one, so that ncu sees each kernel.
# usage: counters NAME SECONDS COMMAND…
counters() {
    local name=$1 seconds=$2 status
    shift 2
    within "$seconds" ncu --csv --log-file "$work/$name.csv" --section SpeedOfLight --section Occupancy --section LaunchStats \
        --section WarpStateStats "$@" >"$work/$name.txt" 2>&1
    status=$?
    case $status in
    0) say "counters of $name: $(grep -c '^"' "$work/$name.csv") lines in counters-logs.tgz" ;;
    124) say "counters of $name: $(grep -c '^"' "$work/$name.csv" 2>/dev/null) lines, there was not time for more" ;;
    *) fail "counters-$name" "status $status: $(tail -n 2 "$work/$name.txt" | tr '\n' ' ')" ;;
    esac
}

part_counters() {
    begin 300
    if command -v ncu >/dev/null; then
        counters step 200 "$plimsoll" bench step --device "$device" --size 96 --precision bf16 --steps 1
        [[ -x $card_test ]] && counters distances 100 "$card_test" all_other_ops
    else
        say "counters: ncu is not installed"
    fi
    end
}

part_torch() {
    begin 480
    local status
    : >"$work/torch.txt"
    if has_torch; then
        within 480 python3 "$here/step.py" --all >"$work/torch.txt" 2>"$work/torch.err"
        status=$?
        if ((status == 124)); then
            say "PyTorch: some is left out, there was not time enough"
        elif ((status != 0)); then
            fail pytorch "status $status: $(tail -n 2 "$work/torch.err" | tr '\n' ' ')"
        fi
        grep '^{.*}$' "$work/torch.txt" | tee -a "$out/report.txt"
    else
        say "PyTorch: left out, python3 has no torch that finds a GPU, or there was not time enough"
    fi
    grep '^{.*}$' "$work/torch.txt" | awk 'BEGIN {printf "["} {printf "%s%s", (NR > 1 ? ",\n" : ""), $0} END {printf "]"}' >"$work/torch.json"
    add pytorch "$work/torch.json"
    end
}

checkpoint=fold_0/checkpoint_final.safetensors
# Sets `run` to the command of a training into a folder.
training_into() {
    run=("$plimsoll" train "$work/demo/dataset" --json --device "$device" --out "$1" --fold 0 --net dynunet --features 16,32,64
        --patch-size 48,48,48 --batch-size 2 --epochs 3 --iterations 25 --validation-iterations 2 --dropout 0.1 --seed 5
        --skip-validation --config /dev/null --precision "$precision" "${@:2}")
}
# Trains to the end; fails where there is no checkpoint then.
trained() {
    training_into "$work/$1" "${@:2}"
    measure "$1" 60 "${run[@]}" || return
    [[ -f $work/$1/$checkpoint ]] || { fail "$1" "it has ended without $checkpoint"; return 1; }
}
# Trains, kills that as soon as there is a checkpoint to go on from, and goes on to the end. Sets `cut` to whether it was killed before its
# end. Where there was no time for a checkpoint the status is 124.
trained_with_a_kill() {
    local seconds pid status latest=$work/killed-$precision/fold_0/checkpoint_latest.safetensors
    seconds=$(seconds_of 60)
    training_into "$work/killed-$precision"
    if ((seconds > 0)); then
        "${run[@]}" >/dev/null 2>"$work/killed-before-$precision.err" &
        pid=$!
        for ((i = 0; i < 10 * seconds; i++)); do
            [[ -f $latest ]] && break
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -9 "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
        status=$?
        if ((status != 0 && status != 137)); then
            fail "killed-$precision" "status $status: $(tail -n 2 "$work/killed-before-$precision.err" | tr '\n' ' ')"
            return 1
        fi
    fi
    # Where it had ended before, there is nothing to go on with, and the bytes are there.
    [[ -f $work/killed-$precision/$checkpoint ]] && cut=false && return
    if [[ ! -f $latest ]]; then
        say "killed-$precision: left out, there was not time enough for a checkpoint"
        return 124
    fi
    cut=true
    trained "killed-$precision" --resume
}
# Sets `same` to whether the checkpoints of two runs are the same; that they are not is a failure.
compare() {
    same=true
    cmp -s "$work/once-$precision/$checkpoint" "$work/$1/$checkpoint" && return
    same=false
    fail "$1" "other bytes than those of the first run"
}
# Trains in a precision, again, and with a kill; `same` and `cut` of it as JSON.
# usage: train_in PRECISION
train_in() {
    precision=$1
    local twice=null resumed=null
    same=null cut=null
    if [[ -f $work/demo/dataset/dataset.json ]] && trained "once-$precision"; then
        trained "twice-$precision" && compare "twice-$precision"
        twice=$same
        same=null
        trained_with_a_kill && compare "killed-$precision"
        resumed=$same
        say "the same bytes in $precision: twice $twice, after kill -9 (before its end: $cut) and --resume $resumed"
    fi
    printf '{"same_twice": %s, "was_cut_off": %s, "same_after_kill": %s}' "$twice" "$cut" "$resumed" >"$work/same-$precision.json"
    add "training_$precision" "$work/once-$precision.json"
    add "same_bytes_$precision" "$work/same-$precision.json"
}

part_runs() {
    begin 300
    local status what precision size classes key found tool
    measure demo 40 "$plimsoll" demo --json --device "$device" --out "$work/demo"
    add demo "$work/demo.json"
    train_in bf16
    train_in f16
    if [[ -f $work/once-bf16/$checkpoint ]]; then
        measure predict 40 "$plimsoll" predict "$work/once-bf16" -i "$work/demo/dataset/imagesTs" -o "$work/labels" --json --device "$device"
    else
        say "predict: left out, there is no trained run"
    fi
    add predict "$work/predict.json"
    if [[ -s $work/predict.json ]]; then
        say "predictions: $(awk -F'[:,]' '/"windows":/ {w += $2} /"seconds":/ {s += $2} END {if (s > 0) printf "%d windows in %.2f s, %.1f a second", w, s, w / s}' "$work/predict.json")"
    fi
    # Windows in a second, and where their time goes: logits are summed on the card where its limit has room.
    printf '[' >"$work/windows.json"
    comma=''
    for what in "bf16 96 2" "f16 96 2" "bf16 128 25" "f32 96 2"; do
        read -r precision size classes <<<"$what"
        key=windows-$precision-$size-$classes
        measure "$key" 25 "$plimsoll" bench predict --json --device "$device" --precision "$precision" --size "$size" \
            --classes "$classes" || continue
        printf '%s' "$comma" >>"$work/windows.json"
        cat "$work/$key.json" >>"$work/windows.json"
        comma=','
        say "windows of $size³, $classes classes, $precision: $(value "$work/$key.json" windows_per_second) a second," \
            "$(value "$work/$key.json" forward_seconds_per_window) s of the network each"
    done
    printf ']' >>"$work/windows.json"
    add windows "$work/windows.json"
    : >"$work/tiles.txt"
    if [[ -x $card_test ]]; then
        within 30 "$card_test" tiles_are_timed --nocapture >"$work/tiles.txt" 2>&1
        status=$?
        if ((status == 124)) && ! has_failed "$work/tiles.txt"; then
            say "tiles: some are left out, there was not time enough"
        elif ((status != 0)); then
            fail tiles "status $status: $(panic_of "$work/tiles.txt")"
        fi
        say "tiles: $(grep -c '^{.*}$' "$work/tiles.txt") timed"
    fi
    grep '^{.*}$' "$work/tiles.txt" | awk 'BEGIN {printf "["} {printf "%s%s", (NR > 1 ? ",\n" : ""), $0} END {printf "]"}' >"$work/tiles.json"
    add tiles "$work/tiles.json"
    : >"$work/sanitizer.json"
    if command -v compute-sanitizer >/dev/null; then
        found='{'
        comma=''
        # usage: check NAME TOOL COMMAND…
        check() {
            within 60 compute-sanitizer --tool "$2" --error-exitcode 9 "${@:3}" >"$work/$1.txt" 2>&1
            status=$?
            # What has failed before its time was up is no part that there was no time for.
            ((status == 124)) && has_failed "$work/$1.txt" && status=1
            case $status in
            0) say "compute-sanitizer $1: $(tail -n 1 "$work/$1.txt")" ;;
            124) say "compute-sanitizer $1: left out, there was not time enough" && status=null ;;
            *) fail "sanitizer-$1" "status $status: $(tail -n 1 "$work/$1.txt")" ;;
            esac
            found+="$comma\"$1\": $status"
            comma=', '
        }
        for tool in racecheck synccheck memcheck; do
            # Each tile of tensor cores, which so small a network does not take.
            [[ -x $card_test ]] && check "$tool-tiles" "$tool" "$card_test" fragments_and_descriptors
            check "$tool" "$tool" "$plimsoll" bench step --device "$device" --size 32 --features 8,16,32 --steps 1
        done
        printf '%s}' "$found" >"$work/sanitizer.json"
    else
        say "compute-sanitizer: not installed"
    fi
    add sanitizer "$work/sanitizer.json"
    end
}

status=0
for part in "${parts[@]}"; do
    "part_$part" || status=1
done
exit "$status"
