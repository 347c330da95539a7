"""The steps from MuSiQue and Wikipedia to training rows, and what runs them in order."""
