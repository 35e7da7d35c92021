"""Consumer groups: who is a member, what each member reads, and how far they have read.

A pure machine, `Groups` in `coordinator`. `group` takes one group from generation to generation,
`roster` knows its members, `offsets` what all groups have committed; `events` is what goes in and
comes out, `records` how it lasts, `reset` where an operator sends a group.
"""
