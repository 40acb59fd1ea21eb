#!/bin/bash
# run_or_skip.sh NEEDED_FILE NEEDED_FILE COMMAND...: exit 77 (skipped) where one of the two tools is missing.
for tool in "$1" "$2"; do
  [ -x "$tool" ] || { echo "skipped: $tool is missing; tools/deps/install.sh --test brings it"; exit 77; }
done
exec "${@:3}"
