#!/usr/bin/env bash
# Runs the steps of the Dockerfile's build and server stages in a clean folder, without an engine:
# COPY, RUN and ENV as they stand there, with /build, /opt and /data below that folder; then starts
# the server as the image would (as the image's user when that is possible), asks it for its health
# and ends it with the image's stop signal.
#
#   docker/run_steps.sh [FOLDER]      the folder must be empty or missing; a temporary one otherwise
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
temporary=
[ $# -gt 0 ] || temporary=$(mktemp -d)
clean=${1:-$temporary}
mkdir -p "$clean"
[ -z "$(ls -A "$clean")" ] || { echo "$clean is not empty" >&2; exit 2; }
clean=$(cd "$clean" && pwd)
chmod 755 "$clean"
workdir=$clean
server=
command=()
entrypoint=()
health=()
stop_signal=TERM
user=

finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$temporary" ] || rm -rf "$temporary"
}
trap finish EXIT

# The image's absolute folders, moved below the clean one.
moved() { sed -E "s#(^|[ =\"'])/(build|opt|data|out|demo)\b#\1$clean/\2#g" <<<"$1"; }

# A JSON list as lines.
listed() { python3 -c 'import json, sys; print(*json.loads(sys.argv[1]), sep="\n")' "$1"; }

copy() {
    local from= words=$1
    case $words in --from=*) from=stage words=${words#* } ;; esac
    # shellcheck disable=SC2086
    set -- $words
    local target=${*: -1} source
    case $target in /*) target=$(moved "$target") ;; *) target=$workdir/$target ;; esac
    for source in "${@:1:$#-1}"; do
        if [ -n "$from" ]; then
            # The stages share one folder, so a copy from a stage has to find it in its place.
            [ -e "$(moved "$source")" ] || { echo "COPY: no $source" >&2; exit 1; }
        elif [ -d "$top/$source" ]; then
            mkdir -p "$target"
            tar -C "$top/$source" --exclude=__pycache__ -cf - . | tar -C "$target" -xf -
        else
            mkdir -p "$target"
            cp "$top/$source" "$target"
        fi
    done
}

step() {
    local word=$1 rest=$2
    echo "+ $word $rest" >&2
    case $word in
        FROM) workdir=$clean ;;
        WORKDIR) workdir=$(moved "$rest"); mkdir -p "$workdir" ;;
        COPY) copy "$rest" ;;
        RUN) (cd "$workdir" && bash -euo pipefail -c "$(moved "$rest")") ;;
        ENV) export "$(moved "$rest")" ;;
        USER) user=$rest ;;
        STOPSIGNAL) stop_signal=${rest#SIG} ;;
        HEALTHCHECK) mapfile -t health < <(listed "$(moved "${rest#*CMD }")") ;;
        ENTRYPOINT) mapfile -t entrypoint < <(listed "$(moved "$rest")") ;;
        CMD) mapfile -t command < <(listed "$(moved "$rest")") ;;
        VOLUME | EXPOSE) ;;
        *) echo "unknown instruction $word" >&2; exit 1 ;;
    esac
}

# Join continued lines, drop comments, leave out the demonstration's stage.
while IFS= read -r line; do
    word=${line%% *} rest=${line#* }
    if [ "$word" = FROM ]; then stage=${rest##* }; fi
    [ "$stage" = demo ] || step "$word" "$(sed -E 's/^ +//; s/ +/ /g' <<<"$rest")"
done < <(sed -e '/^#/d' -e '/^$/d' "$top/docker/Dockerfile" | sed -e ':a' -e '/\\$/N; s/\\\n//; ta')

as_user=()
if [ "$(id -u)" = 0 ] && [ -n "$user" ]; then
    as_user=(setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups)
fi
# The image has the port to itself; here any free one must do.
for index in "${!command[@]}"; do
    [ "${command[index]}" != 0.0.0.0:9092 ] || command[index]=127.0.0.1:0
done
echo "+ ${as_user[*]} ${entrypoint[*]} ${command[*]}" >&2
mkfifo "$clean/ready"
(cd / && exec "${as_user[@]}" "${entrypoint[@]}" "${command[@]}") >"$clean/ready" &
server=$!
read -r ready <"$clean/ready"
echo "$ready"
address=${ready#*kafka=}
address=${address%% *}
for index in "${!health[@]}"; do
    [ "${health[index]}" != 127.0.0.1:9092 ] || health[index]=$address
done
echo "+ ${health[*]}" >&2
(cd / && "${as_user[@]}" "${health[@]}")
kill "-$stop_signal" "$server"
code=0
wait "$server" || code=$?
server=
[ "$code" = 0 ] || { echo "the server ended with $code" >&2; exit 1; }
echo "built, healthy, stopped in order"
