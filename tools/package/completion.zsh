# SPDX-License-Identifier: Apache-2.0
# tools/package/completion.zsh: completes from the table before it (tools/package/completions).

# Runs with zsh's own options, whatever the user set.
emulate -L zsh
local tool=${words[1]:t} key line value name text i
local -A takes
local -a fields offered choices
key=$tool
[[ $_gyre_table == *"$tool ${words[2]}"$'\t'* ]] && key="$tool ${words[2]}"
for line in ${(f)_gyre_table}; do
    fields=("${(@ps:\t:)line}")
    [[ $fields[1] == $key ]] || continue
    name=$fields[2] value=$fields[3] text=$fields[4]
    if [[ $value == '=' ]]; then
        (( CURRENT == 2 )) && offered+=("$name:${text//:/\\:}")
    else
        [[ $value == - ]] || takes[$name]=$value
        offered+=("$name:${text//:/\\:}")
    fi
done
if [[ $tool == (ucx-run|gyre-mpi) ]]; then # after its options comes another program's command line
    for ((i = 2; i < CURRENT; i++)); do
        if [[ $words[i] == -* ]]; then
            [[ -z $takes[$words[i]] ]] || (( ++i ))
        else
            shift $((i - 1)) words
            (( CURRENT -= i - 1 ))
            _normal
            return
        fi
    done
fi
value=$takes[$words[CURRENT-1]]
if [[ -n $value ]]; then
    for name in ${(s:|:)value}; do
        [[ $name == *[^a-z0-9._-]* ]] || choices+=($name)
    done
    (( $#choices )) && compadd -a choices
    [[ $value == (F|D|*FILE*|*DIR*|*PATH*|TOKENIZER|CHECKPOINT|TABLE|COMMAND)* ]] && _files
    return
fi
if [[ $words[CURRENT] == -* || $tool != (ucx-run|gyre-mpi) ]]; then
    _describe -o option offered
    [[ $words[CURRENT] == -* ]] || _files
else
    _command_names -e
    _files
fi
