#!/bin/sh
# killed_rank.sh <mpirun and its options> <program> <mode>: both survivors have to say that all is well, in time. What
# mpirun returns tells nothing, as a rank was killed.
OMPI_MCA_orte_enable_recovery=1
export OMPI_MCA_orte_enable_recovery
said=$(timeout 120 "$@" 2>&1)
echo "$said"
case "$said" in
  *skipped:*) exit 77 ;;
esac
test "$(echo "$said" | grep -c '^a survivor is well')" = 2
