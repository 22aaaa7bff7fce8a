#!/usr/bin/env bash
# Runs a command once for each value of an option: grid.sh OPTION VALUE,VALUE FILE COMMAND...
# The command takes the option, and --csv FILE. FILE gets all rows, with the value in a first column of that name.
set -euo pipefail
(($# > 3)) || { sed -n '2,/^set /s/^# //p' "$0"; exit 2; }
option=$1 file=$3
IFS=, read -ra values <<<"$2"
shift 3
row=$(mktemp)
trap 'rm -f "$row"' EXIT
head=NR
: >"$file"
for value in "${values[@]}"; do
  "$@" "$option" "$value" --csv "$row"
  awk -v name="${option#--}" -v value="$value" "$head"' { print (NR == 1 ? name : value) "," $0 }' "$row" >>"$file"
  head='NR > 1'
done
