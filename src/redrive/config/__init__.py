"""Settings: what there is to set, and where it is read from.

settings.py   every setting, with its default, the values it takes and what it is for
load.py       a file and the environment, validated once, at start
aliases.py    settings of a system under the names of somebody else's contract
parse.py      from what somebody wrote to the value of a setting
code_version.py  which version the user's code is
durations.py  durations as people write them: `250ms`, `1m30s`
"""
