# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # the table
# tools/package/completion.bash: completes from the table before it (tools/package/completions).

# _gyre_value KEY OPTION: the value that the option takes, or nothing
_gyre_value() {
    local key name value
    while IFS=$'\t' read -r key name value _; do
        [ "$key" = "$1" ] && [ "$name" = "$2" ] && [ "$value" != - ] && [ "$value" != = ] && echo "$value" && return
    done <<<"$_gyre_table"
}

# _gyre_values VALUE WORD: choices, or files
_gyre_values() {
    local choices='' value IFS='|'
    for value in $1; do
        case $value in
        F | D | *FILE* | *DIR* | *PATH* | TOKENIZER | CHECKPOINT | TABLE | COMMAND) mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
        *[!a-z0-9._-]* | '') ;;
        *) choices+=$value$'\n' ;;
        esac
    done
    IFS=$'\n'
    while read -r value; do
        COMPREPLY+=("$value")
    done < <(compgen -W "$choices" -- "$2")
}

_gyre() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} tool=${COMP_WORDS[0]##*/} key value name i
    COMPREPLY=()
    key=$tool
    grep -qF "$tool ${COMP_WORDS[1]}"$'\t' <<<"$_gyre_table" && key="$tool ${COMP_WORDS[1]}"
    if [ "$tool" = ucx-run ] || [ "$tool" = gyre-mpi ]; then # after its options comes another program's command line
        for ((i = 1; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
            -*) [ -z "$(_gyre_value "$key" "${COMP_WORDS[i]}")" ] || i=$((i + 1)) ;;
            *)
                if declare -F _command_offset >/dev/null; then
                    _command_offset "$i"
                else
                    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                fi
                return
                ;;
            esac
        done
    fi
    value=$(_gyre_value "$key" "$prev")
    if [ -n "$value" ]; then
        _gyre_values "$value" "$cur"
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$(awk -F '\t' -v key="$key" -v first="$((COMP_CWORD == 1))" \
        '$1 == key && ($3 != "=" || first) { print $2 }' <<<"$_gyre_table")" -- "$cur")
    [ "${#COMPREPLY[@]}" = 0 ] || return
    case $tool in
    ucx-run | gyre-mpi) mapfile -t COMPREPLY < <(compgen -c -- "$cur"; compgen -f -- "$cur") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    esac
}
