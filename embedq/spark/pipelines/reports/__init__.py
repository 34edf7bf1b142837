"""The rooms of the report: what is measured, what follows from it, how it is shown.

Knows: nothing; the rooms are used one by one.
Does not know: Spark, outside `evidence` and `measuring`.
"""
