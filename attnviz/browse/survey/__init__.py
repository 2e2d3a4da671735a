"""The inspector of a survey."""
