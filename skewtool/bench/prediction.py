from dataclasses import dataclass
class Prediction: pass
def predictions_of(job,b,m): return dict.fromkeys(job.layouts)
