"""The columnar reader: Python plans, and Java in Spark's own processes reads sealed segments."""
