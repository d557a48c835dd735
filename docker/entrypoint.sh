#!/bin/sh
# Looks at what a job needs, says what is missing, then becomes the job.
#
#   trainers.alphazero experiment=gpu   a module of ours; TensorBoard runs beside a trainer
#   tensorboard                         over all runs of the volume, port 6006
#   pylos_web                           the web player, port 8000
#   anything else                       is run as it stands
#
# PYLOS_TENSORBOARD=0   no TensorBoard beside a trainer
# PYLOS_CPU=host        compile kernels for this very processor, use none of the stored ones
set -eu

runs=${PWD%/}/runs # where the trainers write; the image's working directory is /

say() { echo "pylos: $*" >&2; }

stop() {
    say "stopped: $*"
    exit 1
}

given() { # given OPTION WORDS...: is the option among the words, with or without "=value"?
    option=$1
    shift
    for word; do
        case $word in "$option" | "$option="*) return 0 ;; esac
    done
    return 1
}

training=no question=no experiment='' device=''
for word; do
    case $word in
        trainers.alphazero | trainers.ppo | pylos-alphazero | pylos-ppo) training=yes ;;
        -h | --help | --hydra-help | -c | --cfg | --info) question=yes ;;
        experiment=*) experiment=${word#*=} ;;
        device=*) device=${word#*=} ;;
    esac
done
[ "$question" = no ] || training=no
[ -n "$device" ] || [ "$experiment" != gpu ] || device=cuda

check_runs() {
    mkdir -p "$runs" 2>/dev/null || true
    if probe=$(mktemp "$runs/.writable.XXXXXX" 2>/dev/null); then
        rm -f "$probe"
        return
    fi
    say "user $(id -u) cannot write to $runs ($(stat -Lc 'owner %u, mode %a' "$runs" 2>/dev/null ||
        echo 'it does not exist')), so nothing of the training would be kept."
    say "On the host, make the folder yours (mkdir -p runs, chown) and start the container with"
    # shellcheck disable=SC2016 # for the reader's own shell
    say '  --user "$(id -u):$(id -g)" -v "$PWD/runs:/runs"    and without :ro'
    stop "$runs is not writable"
}

check_gpu() {
    case $device in cpu | mps) return ;; esac
    if nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
        [ "${PYLOS_TORCH:-cuda}" = cpu ] || return 0
        say "a GPU is visible, but this image was built with TORCH=cpu and cannot use it."
    else
        say "no GPU is visible in this container."
        say "If the machine has one: docker run --gpus all ... (NVIDIA driver and container toolkit)."
    fi
    case $device in
        cuda*) stop "a GPU was asked for (experiment=gpu or device=cuda); device=cpu does without" ;;
    esac
    say "Training goes on with the CPU, which is many times slower for large networks."
}

start_tensorboard() {
    [ "${PYLOS_TENSORBOARD:-1}" != 0 ] || return 0
    log=$(mktemp "${TMPDIR:-/tmp}/tensorboard.XXXXXX")
    # it must not outlive the trainer, which this shell becomes
    setpriv --pdeathsig TERM tensorboard --logdir "$runs" --host 0.0.0.0 >"$log" 2>&1 &
    say "TensorBoard is on port 6006 (docker run -p 6006:6006), its messages in $log"
}

# The stored kernels are for a common kind of processor.
case ${NUMBA_CPU_NAME:-} in
    x86-64-v*)
        if [ "${PYLOS_CPU:-}" = host ]; then
            unset NUMBA_CPU_NAME NUMBA_CPU_FEATURES
        elif ! /lib64/ld-linux-x86-64.so.2 --help | grep -q "$NUMBA_CPU_NAME (supported"; then
            say "this processor is older than $NUMBA_CPU_NAME: kernels are compiled anew for it."
            unset NUMBA_CPU_NAME NUMBA_CPU_FEATURES
        fi
        ;;
esac

# A user that --user made up has no home and no name; libraries ask for both.
[ -w "${HOME:-/}" ] || export HOME="${TMPDIR:-/tmp}"
export USER="${USER:-pylos}"

if [ "$training" = yes ]; then
    check_runs
    check_gpu
    start_tensorboard
fi

case ${1:-} in
    trainers.* | pylos_env.*) set -- python -m "$@" ;;
    pylos_web | pylos-web)
        shift
        given --host "$@" || set -- --host 0.0.0.0 "$@"
        set -- python -m pylos_web "$@"
        ;;
    tensorboard)
        shift
        given --host "$@" || given --bind_all "$@" || set -- --host 0.0.0.0 "$@"
        given --logdir "$@" || set -- --logdir "$runs" "$@"
        set -- tensorboard "$@"
        ;;
esac
exec "$@"
