"""What each finding of right-sizing looks for, and the recommendation it makes."""
