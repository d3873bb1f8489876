"""A consistent region: state over a consumer group in which every record counts exactly once.

Read `region_member.py` for the machine, `rules.py` for what a checkpoint is, `region.py` for the driver.
"""
