"""Consumer groups: who is a member, what each member reads, and how far they have read.

A pure machine, `Groups` in `coordinator`. `group` has one group's members, `offsets` what all
groups have committed, `events` what goes in and comes out, `records` how both last.
"""
