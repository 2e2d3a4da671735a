"""What every report is made of: panels and their scales, exact numbers, how it is drawn, and the reports themselves."""
