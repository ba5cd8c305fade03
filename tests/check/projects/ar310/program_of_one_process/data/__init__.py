from data.loading import setup
