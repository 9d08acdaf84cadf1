"""How fast a farm is: the figures of the paper on secure muskel again, and a table beside others' pools. The command is
`gambeson bench farm`, or `python -m gambeson.farm.bench`.
"""
