"""What is served and how it is asked: values and calls that both of the embedded server's APIs share."""
