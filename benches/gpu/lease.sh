#!/usr/bin/env bash
# All that a machine with an NVIDIA GPU is to say of this program, in less than ten minutes: what the card is, whether its kernels are
# right, how fast steps are and what of its memory they take, whether runs come to the same bytes, and what PyTorch needs for the same.
#
#   cargo build --release -p plimsoll && cargo test --release -p conformance --test card --no-run
#   PLIMSOLL=target/release/plimsoll CARD_TEST=target/release/deps/card-… benches/gpu/lease.sh [FOLDER]
#
# Nothing but the two binaries is needed there: no Rust, no CUDA toolkit. Where python3 has torch (and monai, for the same network) or
# compute-sanitizer is installed, they are used. FOLDER (default gpu-report) gets report.json and report.txt. The status is 3 where there
# is no card, 1 where something failed, else 0.
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
plimsoll=${PLIMSOLL:-$here/../../target/release/plimsoll}
card_test=${CARD_TEST:-}
device=${DEVICE:-cuda:0}
limit=${LIMIT_SECONDS:-570}
out=${1:-gpu-report}
failures=0

if [[ ! -x $plimsoll ]]; then
    echo "lease.sh: no program at $plimsoll: PLIMSOLL names the plimsoll binary" >&2
    exit 2
fi
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
# Rates and inspections of earlier commands are no part of this report.
export XDG_CACHE_HOME=$work/cache
: >"$out/report.txt"
json=$out/report.json
first=1

say() { printf '%s\n' "$*" | tee -a "$out/report.txt"; }

# What is left of the limit, at most so many seconds.
seconds_of() {
    local left=$((limit - SECONDS))
    ((left > $1)) && left=$1
    ((left > 0)) && printf '%s' "$left" || printf '0'
}

# Adds a key with the JSON of a file, or with null where the file is empty.
add() {
    ((first)) || printf ',\n' >>"$json"
    first=0
    printf '"%s": ' "$1" >>"$json"
    if [[ -s $2 ]]; then cat "$2" >>"$json"; else printf 'null' >>"$json"; fi
}

# Runs a command within so many seconds, its JSON into a file; a failure is said, with its last line, and counted.
# usage: measure KEY SECONDS COMMAND…
measure() {
    local key=$1 seconds status
    seconds=$(seconds_of "$2")
    shift 2
    : >"$work/$key.json"
    if ((seconds == 0)); then
        say "$key: left out, the time is up"
        return 0
    fi
    timeout "$seconds" "$@" >"$work/$key.json" 2>"$work/$key.err"
    status=$?
    if ((status == 124)); then
        say "$key: left out, it did not end in $seconds s"
    elif ((status != 0)); then
        say "$key: FAILED ($status): $(tail -n 2 "$work/$key.err" | tr '\n' ' ')"
        failures=$((failures + 1))
    fi
    ((status == 0)) || : >"$work/$key.json"
    return "$status"
}

# The value of a key of pretty-printed JSON, the first one.
value() { sed -n "s/^ *\"$2\": *\"\{0,1\}\(.*[^\",]\)\"\{0,1\},\{0,1\}\$/\1/p" "$1" | head -n 1; }

mebibytes() { [[ $1 =~ ^[0-9]+$ ]] && printf '%s MiB' $(($1 >> 20)) || printf '–'; }

printf '{\n' >"$json"
finish() {
    printf ',\n"failures": %d, "seconds": %d\n}\n' "$failures" "$SECONDS" >>"$json"
    say "$failures failure(s), $SECONDS s; $json"
    ((failures == 0))
}

# ---- the card
measure doctor 60 "$plimsoll" doctor --json || exit 1
add doctor "$work/doctor.json"
if grep -q '"gpu": null' "$work/doctor.json"; then
    printf '\n}\n' >>"$json"
    say "no card: $(value "$work/doctor.json" no_gpu)"
    exit 3
fi
"$plimsoll" doctor 2>&1 | tee -a "$out/report.txt"

# ---- the kernels, against their definitions
: >"$work/conformance.json"
if [[ -x $card_test ]]; then
    start=$SECONDS
    timeout "$(seconds_of 200)" "$card_test" --nocapture >"$work/conformance.txt" 2>&1
    status=$?
    printf '{"status": %d, "seconds": %d}' "$status" $((SECONDS - start)) >"$work/conformance.json"
    tail -n 25 "$work/conformance.txt" >>"$out/report.txt"
    case $status in
    0) say "conformance: all cases agree, $((SECONDS - start)) s" ;;
    124) say "conformance: cut off after $((SECONDS - start)) s" ;;
    *) say "conformance: FAILED ($status)" && failures=$((failures + 1)) ;;
    esac
else
    say "conformance: left out, CARD_TEST names no test binary"
fi
add conformance "$work/conformance.json"

# ---- steps: time, and memory planned and used
printf '[' >"$work/steps.json"
comma=''
for size in 64 96 128; do
    for net in dynunet resenc segresnet; do
        for precision in f32 bf16; do
            key=step-$net-$size-$precision
            measure "$key" 25 "$plimsoll" bench step --json --device "$device" --net "$net" --size "$size" --batch 1 \
                --precision "$precision" --steps 5 || continue
            [[ -s $work/$key.json ]] || continue
            printf '%s' "$comma" >>"$work/steps.json"
            cat "$work/$key.json" >>"$work/steps.json"
            comma=','
            say "step $net ${size}³ $precision: $(value "$work/$key.json" seconds_per_step) s" \
                "($(value "$work/$key.json" predicted_seconds) predicted)," \
                "$(mebibytes "$(value "$work/$key.json" vram_planned_bytes)") planned," \
                "$(mebibytes "$(value "$work/$key.json" vram_used_bytes)") used"
        done
    done
done
printf ']' >>"$work/steps.json"
add steps "$work/steps.json"
measure profile 25 "$plimsoll" bench step --json --device "$device" --size 96 --precision bf16 --steps 3 --profile
{ echo 'nodes of dynunet 96³ bf16, the slowest:'; sort -t '.' -k 1 "$work/profile.err" | awk '{print $(NF-1), $0}' | sort -rn | head -n 20 | cut -d ' ' -f 2-; } >>"$out/report.txt"

# ---- the whole job, and the same bytes whatever happens
measure demo 120 "$plimsoll" demo --json --device "$device" --out "$work/demo"
add demo "$work/demo.json"
data=$work/demo/dataset
# Sets `run` to the command of a training into a folder.
training_into() {
    run=("$plimsoll" train "$data" --json --device "$device" --out "$1" --fold 0 --net dynunet --features 16,32,64
        --patch-size 48,48,48 --batch-size 2 --epochs 3 --iterations 25 --validation-iterations 2 --dropout 0.1 --seed 5
        --skip-validation --config /dev/null "${@:2}")
}
trained() {
    training_into "$work/$1" "${@:2}"
    measure "$1" 60 "${run[@]}"
}
checkpoint=fold_0/checkpoint_final.safetensors
: >"$work/same.json"
if [[ -d $data ]] && trained once && trained twice; then
    cmp -s "$work/once/$checkpoint" "$work/twice/$checkpoint" && twice=true || twice=false
    # Killed as soon as there is a checkpoint to go on from.
    training_into "$work/killed"
    "${run[@]}" >/dev/null 2>&1 &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        [[ -f $work/killed/fold_0/checkpoint_latest.safetensors ]] && break
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    [[ -f $work/killed/$checkpoint ]] && cut=false || cut=true
    # Where it had ended before, there is nothing to go on with, and the bytes are there.
    trained killed --resume
    cmp -s "$work/once/$checkpoint" "$work/killed/$checkpoint" && resumed=true || resumed=false
    printf '{"same_twice": %s, "was_cut_off": %s, "same_after_kill": %s}' "$twice" "$cut" "$resumed" >"$work/same.json"
    say "the same bytes: twice $twice, after kill -9 (before its end: $cut) and --resume $resumed"
    [[ $twice == true && $resumed == true ]] || failures=$((failures + 1))
    add training "$work/once.json"
fi
add same_bytes "$work/same.json"

# ---- predictions
measure predict 60 "$plimsoll" predict "$work/once" -i "$data/imagesTs" -o "$work/labels" --json --device "$device"
add predict "$work/predict.json"
if [[ -s $work/predict.json ]]; then
    say "predictions: $(awk -F'[:,]' '/"windows":/ {w += $2} /"seconds":/ {s += $2} END {if (s > 0) printf "%d windows in %.2f s, %.1f a second", w, s, w / s}' "$work/predict.json")"
fi

# ---- PyTorch beside it
printf '[' >"$work/torch.json"
comma=''
if python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    for size in 64 96 128; do
        for how in "" "--channels-last" "--bf16" "--bf16 --channels-last" "--bf16 --channels-last --compile"; do
            # Compiling takes longer than all the rest, so it is done for one size.
            [[ $how == *compile* && $size != 96 ]] && continue
            key=torch-$size-${how// /}
            # shellcheck disable=SC2086  # options, to be split
            measure "$key" 90 python3 "$here/step.py" --size "$size" --steps 5 $how || continue
            [[ -s $work/$key.json ]] || continue
            printf '%s' "$comma" >>"$work/torch.json"
            cat "$work/$key.json" >>"$work/torch.json"
            comma=','
            say "PyTorch $(cat "$work/$key.json")"
        done
    done
else
    say "PyTorch: left out, python3 has no torch that finds a GPU"
fi
printf ']' >>"$work/torch.json"
add pytorch "$work/torch.json"

# ---- what the driver's own checker says, last: it is slow
: >"$work/sanitizer.json"
if command -v compute-sanitizer >/dev/null; then
    found='{'
    comma=''
    for tool in memcheck racecheck initcheck; do
        timeout "$(seconds_of 60)" compute-sanitizer --tool "$tool" --error-exitcode 9 "$plimsoll" bench step --device "$device" \
            --size 32 --features 8,16,32 --steps 1 >"$work/$tool.txt" 2>&1
        status=$?
        found+="$comma\"$tool\": $status"
        comma=', '
        say "compute-sanitizer $tool: status $status, $(tail -n 1 "$work/$tool.txt")"
        ((status == 9)) && failures=$((failures + 1))
    done
    printf '%s}' "$found" >"$work/sanitizer.json"
else
    say "compute-sanitizer: not installed"
fi
add sanitizer "$work/sanitizer.json"
finish
