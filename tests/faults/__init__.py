"""A small run is disturbed from outside, run again until it is done, and compared with one that nobody disturbed.

    launch/faults.sh          all of it, about half an hour on two cores; writes the table of docs/reliability.md

`world` has the run and what must come out of it, `moments` when something happens to it, `kills`, `signals`, `damage`,
`disks`, `company` what happens, `campaign` runs that and counts.
"""
