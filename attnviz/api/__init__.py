"""The Python API: functions that record, open and draw attention."""
